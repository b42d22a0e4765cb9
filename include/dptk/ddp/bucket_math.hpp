/// What dptk's own hooks do with a bucket's elements: in its stream where it is in device memory, else at
/// once.
#pragma once

#include <cstddef>
#include <cstring>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/device_lane.hpp"
#include "dptk/core/device_math.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/low_rank.hpp"
#include "dptk/core/text.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace dptk::detail {

class BucketMath {
  public:
    /// Which must outlive this.
    explicit BucketMath(const HookBucket& bucket) : bucket_(bucket), lane_(bucket.lane.get()) {}

    /// to = from, in the type of `to`.
    void copy(const Buffer& to, const Buffer& from) const {
        if (is_complex(to.dtype) != is_complex(from.dtype))
            throw ArgumentError(text("a hook makes ", dtype_name(to.dtype), " of ", dtype_name(from.dtype)));
        if (lane_ == nullptr) return convert(to, from);
        const LaneCopy copy{to, from.data};
        lane_->copy({&copy, 1}, {}, from.dtype);
    }

    /// to += factor * from, of f32; what `from` holds then is unspecified.
    void add(const Buffer& to, const Buffer& from, double factor) const {
        if (lane_ != nullptr) {
            const LaneCopy copy{to, from.data};
            return lane_->accumulate({&copy, 1}, factor, from.dtype);
        }
        for (std::size_t i = 0; i < to.count; ++i)
            static_cast<float*>(to.data)[i] +=
                static_cast<float>(factor) * static_cast<const float*>(from.data)[i];
    }

    /// The elements' sum over the ranks. Collective.
    void all_reduce(ProcessGroup& group, const Buffer& elements) const {
        group.channel().run({.verb = Verb::all_reduce,
                             .input = elements,
                             .output = elements,
                             .stream = bucket_.stream,
                             .bucket = static_cast<int>(bucket_.index)});
    }

    /// Elements of the host's, which may change when this returns.
    void write_all(const Buffer& to, const void* from) const {
        if (lane_ != nullptr) return lane_->write_all(to, from);
        std::memcpy(to.data, from, to.bytes());
    }

    void multiply(const LowRank& matrix) const {
        if (lane_ != nullptr) return lane_->math().multiply(matrix);
        detail::multiply(matrix);
    }
    void multiply_transposed(const LowRank& matrix) const {
        if (lane_ != nullptr) return lane_->math().multiply_transposed(matrix);
        detail::multiply_transposed(matrix);
    }
    void expand(const LowRank& matrix) const {
        if (lane_ != nullptr) return lane_->math().expand(matrix);
        detail::expand(matrix);
    }
    void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) const {
        if (lane_ != nullptr) return lane_->math().orthogonalize(matrix, rows, rank);
        detail::orthogonalize(matrix, rows, rank);
    }

  private:
    const HookBucket& bucket_;
    DeviceLane* lane_;
};

}  // namespace dptk::detail
