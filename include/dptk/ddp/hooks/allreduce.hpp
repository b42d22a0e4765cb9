/// The hook that does what DistributedDataParallel does without one; for others to wrap.
#pragma once

#include <memory>
#include <string>

#include "dptk/ddp/bucket_math.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace dptk::hooks {

/// allreduce_hook
class AllReduce final : public CommHook {
  public:
    [[nodiscard]] std::string description() const override { return "allreduce"; }

    void reduce(ProcessGroup& group, HookBucket& bucket) override {
        detail::BucketMath(bucket).all_reduce(group, bucket.elements);
    }
};

/// The sum over the ranks, as without a hook.
[[nodiscard]] inline std::shared_ptr<CommHook> allreduce() {
    return std::make_shared<AllReduce>();
}

}  // namespace dptk::hooks
