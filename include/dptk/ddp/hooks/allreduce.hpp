/// The hook that does what DistributedDataParallel does without one; for others to wrap.
#pragma once

#include <memory>
#include <string>

#include "dptk/ddp/comm_hook.hpp"

namespace dptk::hooks {

/// allreduce_hook
class AllReduce final : public CommHook {
  public:
    [[nodiscard]] std::string description() const override { return "allreduce"; }

    void reduce(ProcessGroup& group, HookBucket& bucket) override {
        group.channel().run({.verb = Verb::all_reduce,
                             .input = bucket.elements,
                             .output = bucket.elements,
                             .bucket = static_cast<int>(bucket.index)});
    }
};

[[nodiscard]] inline std::shared_ptr<CommHook> allreduce() {
    return std::make_shared<AllReduce>();
}

}  // namespace dptk::hooks
