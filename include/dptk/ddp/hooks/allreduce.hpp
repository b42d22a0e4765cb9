/// All-reduce communication hook: sums buckets as DistributedDataParallel does without a hook. Other hooks
/// wrap it.
#pragma once

#include <memory>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace DPTK_NAMESPACE::hooks {

/// Sums a bucket over the ranks by an all-reduce, like PyTorch's allreduce_hook.
class AllReduce final : public CommHook {
  public:
    [[nodiscard]] std::string description() const override { return "allreduce"; }

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    [[nodiscard]] bool is_capturable() const override { return true; }
};

/// Makes a hook that all-reduces buckets, as DistributedDataParallel does without a hook.
[[nodiscard]] std::shared_ptr<CommHook> allreduce();

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/allreduce.ipp"
#endif
