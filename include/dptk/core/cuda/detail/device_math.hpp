/// CudaMath, the DeviceMath (norms, clipping, scaling, PowerSGD products) implemented with CUDA and dptk's
/// kernels.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/detail/gradient_math.hpp"
#include "dptk/core/cuda/detail/kernels.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/detail/device_math.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

/// Returns the floating-point type of a dtype's parts: a complex number counts as two real ones.
[[nodiscard]] DType real_type(DType type) noexcept;
[[nodiscard]] std::size_t real_count(const Buffer& buffer) noexcept;

class CudaMath final : public dptk::detail::DeviceMath {
  public:
    CudaMath(int device, StreamRef stream) : device_(device), stream_(stream) {}

    DPTK_INLINE void norm(std::span<const Buffer> gradients, double norm_type, double max_norm,
                          const Buffer& norm) override;

    DPTK_INLINE void divide(std::span<const Buffer> gradients, const void* divisor) override;

    DPTK_INLINE void scale(std::span<const Buffer> gradients, double factor,
                           const Buffer& found_nonfinite) override;

    DPTK_INLINE void clamp(std::span<const Buffer> gradients, double limit) override;

    DPTK_INLINE void multiply(const dptk::detail::LowRank& matrix) override;
    DPTK_INLINE void multiply_transposed(const dptk::detail::LowRank& matrix) override;
    DPTK_INLINE void expand(const dptk::detail::LowRank& matrix) override;
    DPTK_INLINE void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) override;

  private:
    /// Calls action(type) for each floating-point type, with all tensors of that type in tensors_. A
    /// complex number counts as two real ones.
    template <class Action>
    void for_each_type(std::span<const Buffer> gradients, Action&& action) {
        for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
            tensors_.clear();
            for (const Buffer& gradient : gradients) {
                if (real_type(gradient.dtype) == type && gradient.count > 0)
                    tensors_.push_back({gradient.data, real_count(gradient)});
            }
            if (!tensors_.empty()) action(type);
        }
    }

    void multiply_all(std::span<const Buffer> gradients, const kernels::CopyWeight& weight, int* found);

    int device_;
    StreamRef stream_;
    DeviceBuffer<double> parts_;
    std::vector<kernels::Tensor> tensors_;
    std::vector<kernels::CopiedTensor> copies_;
};

}  // namespace DPTK_NAMESPACE::cuda::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/detail/device_math.ipp"
#endif
