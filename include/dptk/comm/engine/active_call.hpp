/// Tracking of calls in flight: shows the watchdog which call an engine executes, or for which started
/// operation the caller waits.
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

/// Decodes the calls that channels write to a CallTracker.
inline constexpr CallTracker::CallReader call_reader{&describe_packed, &packed_peer};

/// Marks a call as active during this object's lifetime.
class ActiveCall {
  public:
    ActiveCall(CallTracker& tracker, const Collective& call) noexcept : tracker_(tracker) {
        tracker_.begin(PackedCall(call).words());
    }
    ActiveCall(CallTracker& tracker, const Message& message) noexcept : tracker_(tracker) {
        tracker_.begin(pack(message).words());
    }
    ~ActiveCall() { tracker_.end(); }
    ActiveCall(const ActiveCall&) = delete;
    ActiveCall& operator=(const ActiveCall&) = delete;

    /// Carries out the call.
    template <class Operation>
    [[gnu::always_inline]] decltype(auto) run(Operation&& operation) const {
        try {
            return operation();
        } catch (...) {
            tracker_.forget();
            throw;
        }
    }

  private:
    CallTracker& tracker_;
};

/// Sets the time limit of the tracker's calls during this object's lifetime, unless it is 0.
class CallTimeout {
  public:
    CallTimeout(CallTracker& tracker, std::chrono::milliseconds timeout) noexcept : tracker_(tracker) {
        if (timeout.count() != 0) tracker_.set_call_timeout(timeout);
    }
    ~CallTimeout() { tracker_.set_call_timeout(std::chrono::milliseconds(0)); }
    CallTimeout(const CallTimeout&) = delete;
    CallTimeout& operator=(const CallTimeout&) = delete;

  private:
    CallTracker& tracker_;
};

/// A WorkState that marks its call as active while the caller waits for it, reports its errors to the job,
/// and ends the wait when the job fails.
class TrackedWork final : public WorkState {
  public:
    /// What happens to the operation when the job fails: it ends by itself, or it cannot be stopped.
    enum class AtFailure { ends, continues };

    /// `timeout` is the time limit of the call; 0 means the engine's.
    TrackedWork(std::shared_ptr<WorkState> work, std::shared_ptr<ControlPlane> control,
                std::shared_ptr<CallTracker> tracker, const PackedCall& call,
                std::chrono::milliseconds timeout, std::function<void()> then, AtFailure at_failure);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    DPTK_INLINE bool ended() override;

    DPTK_INLINE std::exception_ptr error() override;

    /// Returns the error of an abandoned operation even after error() has returned it: the operation may
    /// still access its memory, which must be kept alive.
    DPTK_INLINE std::exception_ptr unreported_error() override;

    [[nodiscard]] int source_rank() const override { return work_->source_rank(); }

  private:
    /// Fails the job if the error is not agreed between the ranks, as a blocking call does.
    void report_error();

    void finish();

    /// Returns whether the job has failed. If so, the operation is abandoned, and its error is the job's.
    [[nodiscard]] bool given_up();

    std::shared_ptr<WorkState> work_;
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<CallTracker> tracker_;
    PackedCall call_;
    std::chrono::milliseconds timeout_;
    std::function<void()> then_;
    AtFailure at_failure_;
    std::exception_ptr given_up_;
    bool finished_ = false;
    std::optional<Deadline> deadline_;  // starts at the first wait()
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/active_call.ipp"
#endif
