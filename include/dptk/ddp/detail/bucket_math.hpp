/// Arithmetic of dptk's own communication hooks. Member functions enqueue their work on the bucket's stream
/// if the bucket is in device memory; otherwise, they work on the host before they return.
#pragma once

#include <cstddef>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/low_rank.hpp"

namespace DPTK_NAMESPACE::detail {

class BucketMath {
  public:
    /// The bucket must outlive this object.
    explicit BucketMath(const HookBucket& bucket) : bucket_(bucket), lane_(bucket.lane.get()) {}

    /// Computes to = from, converted to the type of `to`.
    void copy(const Buffer& to, const Buffer& from) const;

    /// Computes to += factor * from, in f32. The contents of `from` are unspecified afterwards.
    void add(const Buffer& to, const Buffer& from, double factor) const;

    /// Replaces the elements with their sum over the ranks. Collective.
    void all_reduce(ProcessGroup& group, const Buffer& elements) const;

    /// Copies elements from host memory, which may change after this returns.
    void write_all(const Buffer& to, const void* from) const;

    void multiply(const LowRank& matrix) const;
    void multiply_transposed(const LowRank& matrix) const;
    void expand(const LowRank& matrix) const;
    void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) const;

  private:
    const HookBucket& bucket_;
    DeviceLane* lane_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_math.ipp"
#endif
