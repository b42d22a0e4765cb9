/// Gradients travel in 16 bits: half the bytes of f32. Each is weighted before it is rounded, so that a sum
/// of large gradients does not overflow where their average does not.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/ddp/bucket_math.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace dptk::hooks {

/// fp16_compress_hook and bf16_compress_hook; around another hook, fp16_compress_wrapper and
/// bf16_compress_wrapper. Buckets of other types than f32 and f64 go through as they are.
class Compress final : public CommHook {
  public:
    /// `format` is DType::f16 or DType::bf16. Throws ArgumentError for another one.
    Compress(DType format, std::shared_ptr<CommHook> inner) : format_(format), inner_(std::move(inner)) {
        if (detail::accumulation_dtype(format) == format)
            throw ArgumentError(
                detail::text("hooks::Compress to ", dtype_name(format), ", which has no 16 bits"));
    }

    [[nodiscard]] std::string description() const override {
        return detail::text(dtype_name(format_), " compression of ", inner_->description());
    }

    void reduce(ProcessGroup& group, HookBucket& bucket) override {
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

    [[nodiscard]] bool is_capturable() const override { return inner_->is_capturable(); }

  private:
    DType format_;
    std::shared_ptr<CommHook> inner_;
    detail::HookMemory memory_;
};

/// Gradients travel as f16, by `inner`.
[[nodiscard]] inline std::shared_ptr<CommHook> fp16_compress(std::shared_ptr<CommHook> inner = allreduce()) {
    return std::make_shared<Compress>(DType::f16, std::move(inner));
}

/// Gradients travel as bf16, by `inner`.
[[nodiscard]] inline std::shared_ptr<CommHook> bf16_compress(std::shared_ptr<CommHook> inner = allreduce()) {
    return std::make_shared<Compress>(DType::bf16, std::move(inner));
}

}  // namespace dptk::hooks
