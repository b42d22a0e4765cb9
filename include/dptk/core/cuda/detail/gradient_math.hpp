/// Host functions that launch the kernels for gradient norms, clipping and low-rank products (PowerSGD).
/// gradient_math.cu has the kernels. Each function enqueues its work on a stream and returns; pointers are to
/// device memory. The same input gives the same bits, since the kernels sum in a fixed order.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/low_rank_matrices.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

struct Tensor {
    void* data = nullptr;
    std::size_t count = 0;
};

/// Returns how many f64 values norm_parts() writes for these tensors.
[[nodiscard]] std::size_t norm_part_count(std::span<const Tensor> tensors);

/// Writes the sum of |element|^norm_type for each piece of the tensors, or the largest |element| if
/// norm_type is infinity. Elements are f16, bf16, f32 or f64; throws ArgumentError for other types.
void norm_parts(std::span<const Tensor> tensors, DType type, double norm_type, double* parts,
                StreamRef stream);

/// The norm of all tensors, combined from their parts.
struct Norm {
    double value = 0;
    /// The number by which the gradients must be divided so that their norm is at most max_norm: 1 if the
    /// norm is small enough already, NaN if the norm is NaN or infinite.
    double divisor = 1;
};
void finish_norm(const double* parts, std::size_t count, double norm_type, double max_norm, Norm* norm,
                 StreamRef stream);

/// Clamps each element to [-limit, limit]; NaN stays NaN.
void clamp_all(std::span<const Tensor> tensors, DType type, double limit, StreamRef stream);

using dptk::detail::LowRank;

/// Computes left = elements * right.
void multiply(const LowRank& matrix, StreamRef stream);

/// Computes right = elements^T * left.
void multiply_transposed(const LowRank& matrix, StreamRef stream);

/// Computes elements = left * right^T.
void expand(const LowRank& matrix, StreamRef stream);

/// Orthogonalizes the columns of a matrix of rows x rank by Gram-Schmidt, one by one. A column of zeros
/// stays unchanged.
void orthogonalize(float* matrix, std::size_t rows, std::size_t rank, StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda::kernels
