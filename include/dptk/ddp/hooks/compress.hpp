/// Gradients travel in 16 bits: half the bytes of f32. Each is weighted before it is rounded, so that a sum
/// of large gradients does not overflow where their average does not.
#pragma once

#include <memory>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace DPTK_NAMESPACE::hooks {

/// fp16_compress_hook and bf16_compress_hook; around another hook, fp16_compress_wrapper and
/// bf16_compress_wrapper. Buckets of other types than f32 and f64 go through as they are.
class Compress final : public CommHook {
  public:
    /// `format` is DType::f16 or DType::bf16. Throws ArgumentError for another one.
    Compress(DType format, std::shared_ptr<CommHook> inner);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    [[nodiscard]] bool is_capturable() const override { return inner_->is_capturable(); }

  private:
    DType format_;
    std::shared_ptr<CommHook> inner_;
    detail::HookMemory memory_;
};

/// Gradients travel as f16, by `inner`.
[[nodiscard]] std::shared_ptr<CommHook> fp16_compress(std::shared_ptr<CommHook> inner = allreduce());

/// Gradients travel as bf16, by `inner`.
[[nodiscard]] std::shared_ptr<CommHook> bf16_compress(std::shared_ptr<CommHook> inner = allreduce());

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/compress.ipp"
#endif
