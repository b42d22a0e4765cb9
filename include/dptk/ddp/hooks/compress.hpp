/// Gradient compression to fp16 or bf16: gradients are sent in 16 bits, half the bytes of f32. Each
/// gradient is weighted before it is rounded, so that the sum overflows only if the average does.
#pragma once

#include <memory>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace DPTK_NAMESPACE::hooks {

/// Compresses gradients to 16 bits, and sums them with another hook, like PyTorch's fp16_compress_hook,
/// bf16_compress_hook, fp16_compress_wrapper and bf16_compress_wrapper. Only buckets of f32 and f64 are
/// compressed.
class Compress final : public CommHook {
  public:
    /// `format` is DType::f16 or DType::bf16. Throws ArgumentError for other types.
    Compress(DType format, std::shared_ptr<CommHook> inner);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    [[nodiscard]] bool is_capturable() const override { return inner_->is_capturable(); }

  private:
    DType format_;
    std::shared_ptr<CommHook> inner_;
    detail::HookMemory memory_;
};

/// Makes a hook that compresses gradients to f16, and sums them with `inner`.
[[nodiscard]] std::shared_ptr<CommHook> fp16_compress(std::shared_ptr<CommHook> inner = allreduce());

/// Makes a hook that compresses gradients to bf16, and sums them with `inner`.
[[nodiscard]] std::shared_ptr<CommHook> bf16_compress(std::shared_ptr<CommHook> inner = allreduce());

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/compress.ipp"
#endif
