/// Runs a communication hook on bucket after bucket, on a thread of its own where the transport allows it and
/// the processor of the thread that computes is not what it would take.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Bucket `b` as a hook gets it, but for its step and weight.
[[nodiscard]] HookBucket hook_bucket(const BucketSet& buckets, std::size_t b,
                                     const std::vector<ParameterRef>& parameters);

class HookRunner {
  public:
    /// Collective: the hook has a duplicate of the group, so that nobody else's calls meet its own. Where
    /// there is none (`can_duplicate`), the hook runs on the caller's thread, on the group itself.
    HookRunner(ProcessGroup& group, std::shared_ptr<CommHook> hook, bool can_duplicate);

    /// On this thread. Collective.
    void run(HookBucket& bucket);

    [[nodiscard]] const CommHook& hook() const noexcept { return *hook_; }

    /// Calls `then` when the hook is through with the bucket, on whatever thread. Collective.
    [[nodiscard]] Work start(HookBucket bucket, std::function<void()> then);

  private:
    std::shared_ptr<CommHook> hook_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_;
    bool in_background_ = false;
    WorkQueue queue_;  // ends before the group that it works on
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/hook_runner.ipp"
#endif
