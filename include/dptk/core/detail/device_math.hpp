/// Gradient norms, clipping, scaling and PowerSGD's products on a device, in the stream of a lane. This
/// interface is for code that does not include CUDA's headers; core/cuda/detail/device_math.hpp implements
/// it.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/low_rank_matrices.hpp"

namespace DPTK_NAMESPACE::detail {

/// Computations on gradients in device memory. Calls enqueue their work without waiting for it, though the
/// first call of a kind may allocate. Not thread-safe. Gradients may be of several dtypes; those without a
/// floating-point type are skipped, and a complex number counts as two real ones.
class DeviceMath {
  public:
    DeviceMath() = default;
    virtual ~DeviceMath() = default;
    DeviceMath(const DeviceMath&) = delete;
    DeviceMath& operator=(const DeviceMath&) = delete;

    /// Writes two f64: the norm of all gradients together, and the divisor that brings the norm to at most
    /// max_norm.
    virtual void norm(std::span<const Buffer> gradients, double norm_type, double max_norm,
                      const Buffer& norm) = 0;

    /// Divides all gradients by an f64 in device memory.
    virtual void divide(std::span<const Buffer> gradients, const void* divisor) = 0;

    /// Multiplies all gradients by `factor`. Sets an i32 in device memory to 1 if an element is infinite or
    /// NaN.
    virtual void scale(std::span<const Buffer> gradients, double factor, const Buffer& found_nonfinite) = 0;

    /// Clamps each element to [-limit, limit].
    virtual void clamp(std::span<const Buffer> gradients, double limit) = 0;

    /// Computes left = elements * right.
    virtual void multiply(const LowRank& matrix) = 0;
    /// Computes right = elements^T * left.
    virtual void multiply_transposed(const LowRank& matrix) = 0;
    /// Computes elements = left * right^T.
    virtual void expand(const LowRank& matrix) = 0;
    /// Orthogonalizes the columns of an f32 matrix by Gram-Schmidt.
    virtual void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) = 0;
};

}  // namespace DPTK_NAMESPACE::detail
