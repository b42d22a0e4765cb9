#pragma once

#include "dptk/comm/engine/active_call.hpp"

#include <string_view>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE int packed_peer(CallTracker::Call call) {
    return PackedCall(call).peer();
}

DPTK_INLINE TrackedWork::TrackedWork(std::shared_ptr<WorkState> work, std::shared_ptr<ControlPlane> control,
                                     std::shared_ptr<CallTracker> tracker, const PackedCall& call,
                                     std::chrono::milliseconds timeout, std::function<void()> then,
                                     AtFailure at_failure)
    : work_(std::move(work)),
      control_(std::move(control)),
      tracker_(std::move(tracker)),
      call_(call),
      timeout_(timeout.count() != 0 ? timeout : tracker_->identity().timeout),
      then_(std::move(then)),
      at_failure_(at_failure) {}

DPTK_INLINE bool TrackedWork::wait(std::chrono::nanoseconds timeout) {
    const CallTimeout limit(*tracker_, timeout_);
    if (!deadline_ && tracker_->carries_messages()) {
        tracker_->begin(call_.words());
    } else {
        tracker_->resume(call_.words());
    }
    if (!deadline_) deadline_.emplace(timeout_);
    const bool ended = work_->wait(timeout);
    tracker_->end();
    if (ended) {
        report_error();
        finish();
    } else if (deadline_->passed()) {
        // The watchdog sees no active call if the program only polls.
        control_->job_state()->fail(text("rank ", control_->rank(), ": ", call_.describe(),
                                         " has not completed within ", duration_text(timeout_)),
                                    Failure::deadline);
    }
    return ended || given_up();
}

DPTK_INLINE bool TrackedWork::ended() {
    return work_->ended() && wait(std::chrono::nanoseconds::zero());
}

DPTK_INLINE std::exception_ptr TrackedWork::error() {
    report_error();
    const std::exception_ptr error = work_->error();
    return error ? error : given_up_;
}

DPTK_INLINE std::exception_ptr TrackedWork::unreported_error() {
    const std::exception_ptr error = work_->unreported_error();
    return error ? error : given_up_;
}

DPTK_INLINE void TrackedWork::report_error() {
    const std::exception_ptr error = work_->unreported_error();
    if (!error) return;
    const int rank = control_->rank();
    try {
        std::rethrow_exception(error);
    } catch (const Error& failure) {
        if (!failure.agreed()) control_->job_state()->fail(cause_of(failure, rank));
    } catch (const std::exception& failure) {
        control_->job_state()->fail(text("rank ", rank, ": ", failure.what()));
    }
}

DPTK_INLINE void TrackedWork::finish() {
    if (finished_) return;
    finished_ = true;
    if (!work_->unreported_error() && then_) then_();
    then_ = nullptr;
}

DPTK_INLINE bool TrackedWork::given_up() {
    try {
        control_->job_state()->check();
    } catch (const Error&) {
        given_up_ = std::current_exception();
        // The operation uses its memory until it ends.
        if (at_failure_ == AtFailure::ends) work_->wait(std::chrono::nanoseconds::max());
    }
    return given_up_ != nullptr;
}

}  // namespace DPTK_NAMESPACE::detail
