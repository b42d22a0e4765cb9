/// What a device computes of gradients besides copies, in the stream of a lane; for code without CUDA's
/// headers. core/cuda/detail/device_math.hpp has it.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/low_rank.hpp"

namespace DPTK_NAMESPACE::detail {

/// No call waits for what it does, though the first one of its kind may allocate; none is for two threads at
/// a time. Gradients may be of several dtypes; those of no floating type are left out, and complex numbers
/// are two real ones.
class DeviceMath {
  public:
    DeviceMath() = default;
    virtual ~DeviceMath() = default;
    DeviceMath(const DeviceMath&) = delete;
    DeviceMath& operator=(const DeviceMath&) = delete;

    /// Writes two f64: the norm of all gradients together, and what brings it to max_norm at most when they
    /// are divided by it.
    virtual void norm(std::span<const Buffer> gradients, double norm_type, double max_norm,
                      const Buffer& norm) = 0;

    /// Divides them by an f64 in device memory.
    virtual void divide(std::span<const Buffer> gradients, const void* divisor) = 0;

    /// Multiplies them; an i32 in device memory becomes 1 where one is infinite or not a number.
    virtual void scale(std::span<const Buffer> gradients, double factor, const Buffer& found_nonfinite) = 0;

    /// Moves each element into [-limit, limit].
    virtual void clamp(std::span<const Buffer> gradients, double limit) = 0;

    /// left = elements * right
    virtual void multiply(const LowRank& matrix) = 0;
    /// right = elements^T * left
    virtual void multiply_transposed(const LowRank& matrix) = 0;
    /// elements = left * right^T
    virtual void expand(const LowRank& matrix) = 0;
    /// Gram-Schmidt on the columns of a matrix of f32.
    virtual void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) = 0;
};

}  // namespace DPTK_NAMESPACE::detail
