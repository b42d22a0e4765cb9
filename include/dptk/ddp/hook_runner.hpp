/// Runs a communication hook on bucket after bucket, on a thread of its own where the transport allows it and
/// the processor of the thread that computes is not what it would take.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_queue.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace dptk::detail {

class HookRunner {
  public:
    /// Collective: the hook has a duplicate of the group, so that nobody else's calls meet its own. Where
    /// there is none (`can_duplicate`), the hook runs on the caller's thread, on the group itself.
    HookRunner(ProcessGroup& group, std::shared_ptr<CommHook> hook, bool can_duplicate)
        : hook_(std::move(hook)), group_(&group) {
        if (!can_duplicate) return;
        own_group_ = std::make_unique<ProcessGroup>(group.duplicate());
        group_ = own_group_.get();
        in_background_ =
            !group_->channel().progresses_by_caller() && !group_->channel().competes_with_compute();
    }

    /// Calls `then` when the hook is through with the bucket, on whatever thread. Collective.
    [[nodiscard]] Work start(HookBucket bucket, std::function<void()> then) {
        const auto run = [this, bucket = std::move(bucket), then = std::move(then)]() mutable {
            break_job_unless_agreed(group_->channel().job(), [&] { hook_->reduce(*group_, bucket); });
            then();
            return -1;
        };
        if (in_background_) return Work(queue_.start(run));
        auto here = run;
        static_cast<void>(here());
        return {};
    }

  private:
    std::shared_ptr<CommHook> hook_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_;
    bool in_background_ = false;
    WorkQueue queue_;  // ends before the group that it works on
};

}  // namespace dptk::detail
