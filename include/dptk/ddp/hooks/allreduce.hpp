/// The hook that does what DistributedDataParallel does without one; for others to wrap.
#pragma once

#include <memory>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace DPTK_NAMESPACE::hooks {

/// allreduce_hook
class AllReduce final : public CommHook {
  public:
    [[nodiscard]] std::string description() const override { return "allreduce"; }

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;
};

/// The sum over the ranks, as without a hook.
[[nodiscard]] std::shared_ptr<CommHook> allreduce();

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/allreduce.ipp"
#endif
