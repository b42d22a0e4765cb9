#pragma once

#include "dptk/ddp/hooks/compress.hpp"

#include <cstddef>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/ddp/detail/bucket_math.hpp"

namespace DPTK_NAMESPACE::hooks {

DPTK_INLINE Compress::Compress(DType format, std::shared_ptr<CommHook> inner)
    : format_(format), inner_(std::move(inner)) {
    if (detail::accumulation_dtype(format) == format)
        throw ArgumentError(
            detail::text("hooks::Compress: invalid format ", dtype_name(format), ": expected f16 or bf16"));
}

DPTK_INLINE std::string Compress::description() const {
    return detail::text(dtype_name(format_), " compression of ", inner_->description());
}

DPTK_INLINE void Compress::reduce(ProcessGroup& group, HookBucket& bucket) {
    const DType dtype = bucket.elements.dtype;
    if (dtype != DType::f32 && dtype != DType::f64) return inner_->reduce(group, bucket);
    HookBucket small = bucket;
    small.elements = memory_.get(bucket, bucket.elements.count, format_);
    for (HookBucket::Gradient& gradient : small.gradients) {
        const auto* first = static_cast<const std::byte*>(bucket.elements.data);
        const auto* here = static_cast<const std::byte*>(gradient.elements.data);
        const std::size_t before = static_cast<std::size_t>(here - first) / dtype_size(dtype);
        gradient.elements = small.elements.slice(before, gradient.elements.count);
    }
    const detail::BucketMath math(bucket);
    math.copy(small.elements, bucket.elements);
    inner_->reduce(group, small);
    math.copy(bucket.elements, small.elements);
}

DPTK_INLINE std::shared_ptr<CommHook> fp16_compress(std::shared_ptr<CommHook> inner) {
    return std::make_shared<Compress>(DType::f16, std::move(inner));
}

DPTK_INLINE std::shared_ptr<CommHook> bf16_compress(std::shared_ptr<CommHook> inner) {
    return std::make_shared<Compress>(DType::bf16, std::move(inner));
}

}  // namespace DPTK_NAMESPACE::hooks
