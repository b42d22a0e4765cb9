#pragma once

#include "dptk/comm/work.hpp"

#include <atomic>
#include <utility>

#include "dptk/comm/detail/block_pool.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// What the copies of one Work share.
class WorkHandle {
  public:
    explicit WorkHandle(std::shared_ptr<WorkState> operation) : state(std::move(operation)) {}
    WorkHandle(std::shared_ptr<WorkState> operation, std::shared_ptr<ControlPlane> control,
               std::shared_ptr<CallTracker> tracker)
        : state(std::move(operation)), control_(std::move(control)), tracker_(std::move(tracker)) {}

    WorkHandle(const WorkHandle&) = delete;
    WorkHandle& operator=(const WorkHandle&) = delete;

    /// Waits for the operation, as Work documents. An error of the operation stays unreported, so that the
    /// next barrier() throws it.
    ~WorkHandle() {
        if (is_detached || fork_guard_.is_in_child()) return;
        try {
            const bool is_unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
            if (control_ && is_unwinding && !control_->agreed_errors().is_unwinding() && !state->ended()) {
                control_->job_state()->fail(
                    text("rank ", control_->rank(), " left an operation in flight because of an exception"));
                if (!control_->is_interruptible()) {
                    abandon();
                    return;
                }
            }
            static_cast<void>(wait(std::chrono::nanoseconds::max()));
        } catch (const std::exception&) {
        }
    }

    /// Waits for the operation. Only a wait without a timeout keeps the program from making other calls.
    bool wait(std::chrono::nanoseconds timeout) {
        if (fork_guard_.is_in_child())
            throw ArgumentError(
                "a forked process waited for an operation of its parent: only the parent may");
        if (!tracker_ || timeout != std::chrono::nanoseconds::max()) return state->wait(timeout);
        const ProgramWait::Scope waits(control_->program(), *tracker_);
        return state->wait(timeout);
    }

    std::shared_ptr<WorkState> state;
    std::atomic<bool> is_detached = false;

  private:
    /// Stops waiting for an operation that may never end, so that the exception reaches its handler before
    /// the job is ended. Operations in which the other ranks take part end within the delay.
    void abandon() {
        constexpr std::chrono::milliseconds delay{200};
        const bool is_first = control_->abandon_calls();
        if (!state->wait(is_first ? delay : std::chrono::milliseconds(0)) && tracker_) tracker_->abandon();
    }

    std::shared_ptr<ControlPlane> control_;  // null for an operation of no job
    std::shared_ptr<CallTracker> tracker_;
    ForkGuard fork_guard_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE void WorkState::order_before(StreamRef stream) {
    static_cast<void>(stream);
    static_cast<void>(wait(std::chrono::nanoseconds::max()));
}

DPTK_INLINE bool WorkState::ended() {
    return wait(std::chrono::nanoseconds::zero());
}

DPTK_INLINE Work::Work(std::shared_ptr<WorkState> state) {
    if (state) handle_ = detail::make_pooled<detail::WorkHandle>(std::move(state));
}

DPTK_INLINE Work::Work(std::shared_ptr<WorkState> state, std::shared_ptr<detail::ControlPlane> control,
                       std::shared_ptr<detail::CallTracker> tracker) {
    if (state)
        handle_ =
            detail::make_pooled<detail::WorkHandle>(std::move(state), std::move(control), std::move(tracker));
}

DPTK_INLINE void Work::wait() {
    static_cast<void>(wait(std::chrono::nanoseconds::max()));
}

DPTK_INLINE bool Work::wait(std::chrono::nanoseconds timeout) {
    if (!handle_) return true;
    const bool ended = handle_->wait(timeout);
    if (const std::exception_ptr failure = handle_->state->error()) std::rethrow_exception(failure);
    return ended;
}

DPTK_INLINE void Work::wait(StreamRef stream) {
    if (!handle_) return;
    handle_->state->order_before(stream);
    handle_->is_detached = true;
    if (const std::exception_ptr failure = handle_->state->error()) std::rethrow_exception(failure);
}

DPTK_INLINE void Work::detach() noexcept {
    if (handle_) handle_->is_detached = true;
}

DPTK_INLINE bool Work::done() {
    return !handle_ || handle_->state->wait(std::chrono::nanoseconds::zero());
}

DPTK_INLINE std::exception_ptr Work::error() {
    return handle_ ? handle_->state->error() : nullptr;
}

DPTK_INLINE std::shared_ptr<WorkState> Work::state() const noexcept {
    return handle_ ? handle_->state : nullptr;
}

DPTK_INLINE int Work::source_rank() {
    wait();
    return handle_ ? handle_->state->source_rank() : -1;
}

}  // namespace DPTK_NAMESPACE
