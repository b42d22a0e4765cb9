/// ChannelBase: the part of a channel that does not depend on the type of its transport.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/call_checker.hpp"
#include "dptk/comm/detail/call_context.hpp"
#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/started_calls.hpp"
#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Checks who calls, orders started calls, and ends the channel: in an orderly shutdown, or in an abort if
/// the job has failed.
class ChannelBase : public Channel {
  public:
    void set_purpose(const CallPurpose& purpose) override { tracker().set_purpose(purpose); }

    void set_algorithm(AllReduceAlgorithm algorithm) override { algorithm_ = algorithm; }

    DPTK_INLINE void monitored_barrier(std::chrono::milliseconds timeout) override;

    [[nodiscard]] const ChannelIdentity& identity() const override { return tracker().identity(); }

    [[nodiscard]] DPTK_INLINE ChannelIdentity
    next_identity(std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) override;

    [[nodiscard]] const ChannelJob& job() const override { return context_->job; }

  protected:
    /// What the transport can do.
    struct Abilities {
        /// Its calls run on a GPU stream, and stay active after the caller has gone on.
        bool enqueues = false;
        bool receives_from_any = false;
        /// A failure of the job ends its calls.
        bool is_interruptible = false;
    };

    ChannelBase(std::shared_ptr<CallContext> context, std::shared_ptr<CallerState> caller,
                Abilities abilities);

    /// Opens the channel. Call this at the end of the constructor, and end() in the destructor.
    void open();

    /// Ends the channel. Logs errors.
    void end() noexcept;

    /// The transport's part of end(). In a forked child, keep_transport() is called instead of the others.
    virtual void finish_enqueued() {}
    virtual void close_transport() {}
    virtual void leave_transport() {}
    virtual void keep_transport() noexcept {}

    [[nodiscard]] CallTracker& tracker() const noexcept { return *tracker_; }

    [[nodiscard]] AllReduceAlgorithm algorithm() const noexcept { return algorithm_; }

    [[nodiscard]] AllReduceAlgorithm algorithm_of(const Collective& call) const noexcept {
        return call.algorithm != AllReduceAlgorithm::automatic ? call.algorithm : algorithm_;
    }

    /// Throws ArgumentError in a forked child, or if another thread is in a call of this channel.
    [[gnu::always_inline]] void check_caller(const Collective& call) const {
        if (fork_guard_.is_in_child()) [[unlikely]]
            refuse_child(call);
        if (abilities_.enqueues) return;
        const std::optional<std::uint64_t> active = tracker().active_call();
        if (!active) [[likely]]
            return;
        // If the background thread executed this call, the queue would not be idle while the call is active.
        if (queue_.idle() && tracker().active_call() == active) refuse_second_caller(call);
    }

    /// Throws ArgumentError if the transport does not support the call's memory.
    void check_device_memory(const Collective& call) const;

    [[nodiscard]] std::string no_devices_text() const;

    void run_with_timeout(const Collective& call);

    /// Throws ArgumentError if the message is invalid. Returns whether it is the first one.
    [[nodiscard]] bool begin_message(const Message& message);

    template <class Operation>
    void abort_job_on_error(Operation&& operation) const {
        context_->abort_job_on_error(operation);
    }

    /// Runs the operation after all deferred and queued operations have ended. Fails the job if an error is
    /// not agreed between the ranks.
    template <class Operation>
    void in_order(Operation&& operation) {
        check_caller({.verb = Verb::duplicate});
        launch_started();
        abort_job_on_error([&] {
            finish_earlier();
            operation();
        });
    }

    /// Starts a call on the background thread, which calls `prepared`, or carries out the call if that is
    /// null.
    [[nodiscard]] std::shared_ptr<WorkState> start_on_thread(const Collective& call,
                                                             std::function<void()> prepared,
                                                             std::shared_ptr<const void> keep_alive,
                                                             std::function<void()> then);

    /// Returns the function that a deferred call runs at each poll. It throws if the job has failed, and
    /// fails the job if the first poll was longer ago than the timeout of a call.
    [[nodiscard]] std::function<void()> poll_check(const Collective& call) const;

    [[nodiscard]] const std::shared_ptr<JobState>& job_state() const noexcept { return job_state_; }
    [[nodiscard]] const std::shared_ptr<CallerState>& caller() const noexcept { return caller_; }
    [[nodiscard]] const std::shared_ptr<CallTracker>& message_tracker() const noexcept {
        return message_tracker_;
    }
    [[nodiscard]] WorkQueue& queue() noexcept { return queue_; }
    [[nodiscard]] StartedCalls& started() noexcept { return started_; }

  private:
    void finish_earlier();

    [[noreturn]] void refuse_child(const Collective& call) const;
    [[noreturn]] void refuse_second_caller(const Collective& call) const;

    void leak() noexcept;
    void close() noexcept;

    std::shared_ptr<CallContext> context_;
    CallTracker* tracker_;  // owned by context_
    std::shared_ptr<JobState> job_state_;
    std::shared_ptr<CallerState> caller_;
    std::shared_ptr<CallTracker> message_tracker_;
    AllReduceAlgorithm algorithm_ = AllReduceAlgorithm::automatic;
    Abilities abilities_;
    ForkGuard fork_guard_;
    WorkQueue queue_;
    StartedCalls started_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/channel_base.ipp"
#endif
