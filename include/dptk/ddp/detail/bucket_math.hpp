/// What dptk's own hooks do with a bucket's elements: in its stream where it is in device memory, else at
/// once.
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
    /// Which must outlive this.
    explicit BucketMath(const HookBucket& bucket) : bucket_(bucket), lane_(bucket.lane.get()) {}

    /// to = from, in the type of `to`.
    void copy(const Buffer& to, const Buffer& from) const;

    /// to += factor * from, of f32; what `from` holds then is unspecified.
    void add(const Buffer& to, const Buffer& from, double factor) const;

    /// The elements' sum over the ranks. Collective.
    void all_reduce(ProcessGroup& group, const Buffer& elements) const;

    /// Elements of the host's, which may change when this returns.
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
