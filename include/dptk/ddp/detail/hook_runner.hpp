/// Runs a communication hook on one bucket after the other: on a background thread if the transport
/// supports it and does not compete with backward for processors, otherwise on the calling thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/comm/engine/work_queue.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"

namespace DPTK_NAMESPACE::detail {

/// Makes the HookBucket of bucket `b`, without its step and weight.
[[nodiscard]] HookBucket hook_bucket(const BucketSet& buckets, std::size_t b,
                                     const std::vector<ParameterRef>& parameters);

class HookRunner {
  public:
    /// Collective. The hook gets a duplicate of the group, so that its calls cannot be confused with other
    /// calls. If `can_duplicate` is false, the hook runs on the caller's thread, on the group itself.
    HookRunner(ProcessGroup& group, std::shared_ptr<CommHook> hook, bool can_duplicate);

    /// Runs the hook on this thread. Collective.
    void run(HookBucket& bucket);

    [[nodiscard]] const CommHook& hook() const noexcept { return *hook_; }

    /// Runs the hook, and then calls `then`, possibly on another thread. Collective.
    [[nodiscard]] Work start(HookBucket bucket, std::function<void()> then);

  private:
    std::shared_ptr<CommHook> hook_;
    std::unique_ptr<ProcessGroup> own_group_;
    ProcessGroup* group_;
    bool in_background_ = false;
    WorkQueue queue_;  // declared last: its thread must end before the group is destroyed
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/hook_runner.ipp"
#endif
