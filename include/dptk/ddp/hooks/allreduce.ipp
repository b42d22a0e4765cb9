#pragma once

#include "dptk/ddp/hooks/allreduce.hpp"

#include "dptk/ddp/detail/bucket_math.hpp"

namespace DPTK_NAMESPACE::hooks {

DPTK_INLINE void AllReduce::reduce(ProcessGroup& group, HookBucket& bucket) {
    detail::BucketMath(bucket).all_reduce(group, bucket.elements);
}

DPTK_INLINE std::shared_ptr<CommHook> allreduce() {
    return std::make_shared<AllReduce>();
}

}  // namespace DPTK_NAMESPACE::hooks
