#pragma once

#include "dptk/ddp/detail/bucket_math.hpp"

#include <cstring>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void BucketMath::copy(const Buffer& to, const Buffer& from) const {
    if (is_complex(to.dtype) != is_complex(from.dtype))
        throw ArgumentError(text("a communication hook cannot convert ", dtype_name(from.dtype), " to ",
                                 dtype_name(to.dtype), ": expected both types or neither to be complex"));
    if (lane_ == nullptr) return convert(to, from);
    const LaneCopy copy{to, from.data};
    lane_->copy({&copy, 1}, {}, from.dtype);
}

DPTK_INLINE void BucketMath::add(const Buffer& to, const Buffer& from, double factor) const {
    if (lane_ != nullptr) {
        const LaneCopy copy{to, from.data};
        return lane_->accumulate({&copy, 1}, factor, from.dtype);
    }
    for (std::size_t i = 0; i < to.count; ++i)
        static_cast<float*>(to.data)[i] +=
            static_cast<float>(factor) * static_cast<const float*>(from.data)[i];
}

DPTK_INLINE void BucketMath::all_reduce(ProcessGroup& group, const Buffer& elements) const {
    group.engine().run({.verb = Verb::all_reduce,
                        .input = elements,
                        .output = elements,
                        .stream = bucket_.stream,
                        .bucket = static_cast<int>(bucket_.index)});
}

DPTK_INLINE void BucketMath::write_all(const Buffer& to, const void* from) const {
    if (lane_ != nullptr) return lane_->write_all(to, from);
    std::memcpy(to.data, from, to.bytes());
}

DPTK_INLINE void BucketMath::multiply(const LowRank& matrix) const {
    if (lane_ != nullptr) return lane_->math().multiply(matrix);
    detail::multiply(matrix);
}

DPTK_INLINE void BucketMath::multiply_transposed(const LowRank& matrix) const {
    if (lane_ != nullptr) return lane_->math().multiply_transposed(matrix);
    detail::multiply_transposed(matrix);
}

DPTK_INLINE void BucketMath::expand(const LowRank& matrix) const {
    if (lane_ != nullptr) return lane_->math().expand(matrix);
    detail::expand(matrix);
}

DPTK_INLINE void BucketMath::orthogonalize(float* matrix, std::size_t rows, std::size_t rank) const {
    if (lane_ != nullptr) return lane_->math().orthogonalize(matrix, rows, rank);
    detail::orthogonalize(matrix, rows, rank);
}

}  // namespace DPTK_NAMESPACE::detail
