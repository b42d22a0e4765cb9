/// Shows the watchdog which call a channel is in: while it runs, or while somebody waits for an operation
/// that was started before.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/activity.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/deadline.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

[[nodiscard]] inline int packed_peer(Activity::Call call) {
    return PackedCall(call).peer();
}

/// How the calls of channels are read.
inline constexpr Activity::CallReader call_reader{&describe_packed, &packed_peer};

/// Marks a call as under way, for as long as it lives.
class ActiveCall {
  public:
    ActiveCall(Activity& activity, const Collective& call) noexcept : activity_(activity) {
        activity_.begin(PackedCall(call).words());
    }
    ActiveCall(Activity& activity, const Message& message) noexcept : activity_(activity) {
        activity_.begin(pack(message).words());
    }
    ~ActiveCall() { activity_.end(); }
    ActiveCall(const ActiveCall&) = delete;
    ActiveCall& operator=(const ActiveCall&) = delete;

  private:
    Activity& activity_;
};

/// An operation that goes on while somebody waits for it: then its call is under way.
class ResumedWork final : public WorkState {
  public:
    /// What happens to the operation when the job fails: it ends by itself, or nobody can end it.
    enum class AtFailure { ends, stays };

    ResumedWork(std::shared_ptr<WorkState> work, std::shared_ptr<ControlPlane> control,
                std::shared_ptr<Activity> activity, const PackedCall& call, std::function<void()> then,
                AtFailure at_failure)
        : work_(std::move(work)),
          control_(std::move(control)),
          activity_(std::move(activity)),
          call_(call),
          then_(std::move(then)),
          at_failure_(at_failure) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        if (!deadline_ && activity_->carries_messages()) {
            activity_->begin(call_.words());
        } else {
            activity_->resume(call_.words());
        }
        if (!deadline_) deadline_.emplace(activity_->identity().timeout);
        const bool ended = work_->wait(timeout);
        activity_->end();
        if (ended) {
            tell_error();
            finish();
        } else if (deadline_->passed()) {
            // The watchdog sees no call under way where a program only asks, again and again.
            control_->health()->fail(
                text("rank ", control_->rank(), ": ", call_.describe(), " has not completed within ",
                     duration_text(activity_->identity().timeout)),
                Failure::deadline);
        }
        return ended || given_up();
    }

    bool ended() override { return work_->ended() && wait(std::chrono::nanoseconds::zero()); }

    std::exception_ptr error() override {
        tell_error();
        const std::exception_ptr error = work_->error();
        return error ? error : given_up_;
    }

    /// An operation that was given up may still use its memory: it counts as unseen, and so is kept.
    std::exception_ptr unseen_error() override {
        const std::exception_ptr error = work_->unseen_error();
        return error ? error : given_up_;
    }

    [[nodiscard]] int source_rank() const override { return work_->source_rank(); }

  private:
    /// An error that is not agreed between the ranks breaks the job, as in a blocking call.
    void tell_error() {
        const std::exception_ptr error = work_->unseen_error();
        if (!error) return;
        const auto fail = [&](std::string_view what) {
            control_->health()->fail(text("rank ", control_->rank(), ": ", what));
        };
        try {
            std::rethrow_exception(error);
        } catch (const Error& failure) {
            if (!failure.agreed()) fail(failure.what());
        } catch (const std::exception& failure) {
            fail(failure.what());
        }
    }

    void finish() {
        if (finished_) return;
        finished_ = true;
        if (!work_->unseen_error() && then_) then_();
        then_ = nullptr;
    }

    /// Nobody will complete a call of a job that has failed.
    [[nodiscard]] bool given_up() {
        try {
            control_->health()->check();
        } catch (const Error&) {
            given_up_ = std::current_exception();
            // Until then its memory is in use.
            if (at_failure_ == AtFailure::ends) work_->wait(std::chrono::nanoseconds::max());
        }
        return given_up_ != nullptr;
    }

    std::shared_ptr<WorkState> work_;
    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<Activity> activity_;
    PackedCall call_;
    std::function<void()> then_;
    AtFailure at_failure_;
    std::exception_ptr given_up_;
    bool finished_ = false;
    std::optional<Deadline> deadline_;  // from when it was first waited for
};

}  // namespace dptk::detail
