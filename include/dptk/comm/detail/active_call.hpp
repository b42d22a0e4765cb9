/// Shows the watchdog which call a channel is in: while it runs, or while somebody waits for an operation
/// that was started before.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] int packed_peer(CallTracker::Call call);

/// How the calls of channels are read.
inline constexpr CallTracker::CallReader call_reader{&describe_packed, &packed_peer};

/// Marks a call as under way, for as long as it lives.
class ActiveCall {
  public:
    ActiveCall(CallTracker& activity, const Collective& call) noexcept : tracker_(activity) {
        tracker_.begin(PackedCall(call).words());
    }
    ActiveCall(CallTracker& activity, const Message& message) noexcept : tracker_(activity) {
        tracker_.begin(pack(message).words());
    }
    ~ActiveCall() { tracker_.end(); }
    ActiveCall(const ActiveCall&) = delete;
    ActiveCall& operator=(const ActiveCall&) = delete;

  private:
    CallTracker& tracker_;
};

/// An operation that goes on while somebody waits for it: then its call is under way.
class ResumedWork final : public WorkState {
  public:
    /// What happens to the operation when the job fails: it ends by itself, or nobody can end it.
    enum class AtFailure { ends, stays };

    ResumedWork(std::shared_ptr<WorkState> work, std::shared_ptr<ControlPlane> control,
                std::shared_ptr<CallTracker> activity, const PackedCall& call, std::function<void()> then,
                AtFailure at_failure);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE bool ended() override;

    DPTK_INLINE std::exception_ptr error() override;

    /// An operation that was given up may still use its memory: it counts as unseen, and so is kept.
    DPTK_INLINE std::exception_ptr unseen_error() override;

    [[nodiscard]] int source_rank() const override { return work_->source_rank(); }

  private:
    /// An error that is not agreed between the ranks breaks the job, as in a blocking call.
    void tell_error();

    void finish();

    /// Nobody will complete a call of a job that has failed.
    [[nodiscard]] bool given_up();

    std::shared_ptr<WorkState> work_;
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<CallTracker> tracker_;
    PackedCall call_;
    std::function<void()> then_;
    AtFailure at_failure_;
    std::exception_ptr given_up_;
    bool finished_ = false;
    std::optional<Deadline> deadline_;  // from when it was first waited for
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/active_call.ipp"
#endif
