/// Runs a communication hook on bucket after bucket, on a thread of its own where the transport allows it and
/// the processor of the thread that computes is not what it would take.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_queue.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

/// Bucket `b` as a hook gets it, but for its step and weight.
[[nodiscard]] inline HookBucket hook_bucket(const BucketSet& buckets, std::size_t b,
                                            const std::vector<ParameterRef>& parameters) {
    HookBucket out{
        .index = b, .is_last = b + 1 == buckets.size(), .elements = buckets[b].gradients(), .gradients = {}};
    const std::vector<std::size_t>& indices = buckets[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters[indices[position]];
        out.gradients.push_back({.parameter = indices[position],
                                 .shape = parameter.shape,
                                 .elements = buckets[b].gradient(position, parameter.count)});
    }
    return out;
}

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

    /// On this thread. Collective.
    void run(HookBucket& bucket) {
        break_job_unless_agreed(group_->channel().job(), [&] { hook_->reduce(*group_, bucket); });
    }

    [[nodiscard]] const CommHook& hook() const noexcept { return *hook_; }

    /// Calls `then` when the hook is through with the bucket, on whatever thread. Collective.
    [[nodiscard]] Work start(HookBucket bucket, std::function<void()> then) {
        const auto reduce = [this, bucket = std::move(bucket), then = std::move(then)]() mutable {
            run(bucket);
            then();
            return -1;
        };
        if (in_background_) return Work(queue_.start(reduce));
        auto here = reduce;
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
