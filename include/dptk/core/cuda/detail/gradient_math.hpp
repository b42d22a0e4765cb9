/// What is computed of gradients besides copies, as plain host functions: norms, limits, and the products of
/// thin matrices. gradient_math.cu has the kernels. Each function puts its work on a stream and returns;
/// pointers are to device memory. The same input gives the same bits: sums are in a fixed order.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/ddp/detail/low_rank.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

struct Tensor {
    void* data = nullptr;
    std::size_t count = 0;
};

/// How many f64 norm_parts() writes for tensors.
[[nodiscard]] std::size_t norm_part_count(std::span<const Tensor> tensors);

/// Writes, for each piece of the tensors, the sum of |element|^norm_type; the largest |element| where that is
/// infinity. Elements are f16, bf16, f32 or f64; throws ArgumentError for others.
void norm_parts(std::span<const Tensor> tensors, DType type, double norm_type, double* parts,
                StreamRef stream);

/// Of the parts of all tensors.
struct Norm {
    double value = 0;
    /// What gradients are divided by so that their norm is at most max_norm: 1 where it is that already; not
    /// a number where the norm is none, or infinite.
    double divisor = 1;
};
void finish_norm(const double* parts, std::size_t count, double norm_type, double max_norm, Norm* norm,
                 StreamRef stream);

/// Moves each element into [-limit, limit]; what is not a number stays.
void clamp_all(std::span<const Tensor> tensors, DType type, double limit, StreamRef stream);

using dptk::detail::LowRank;

/// left = elements * right
void multiply(const LowRank& matrix, StreamRef stream);

/// right = elements^T * left
void multiply_transposed(const LowRank& matrix, StreamRef stream);

/// elements = left * right^T
void expand(const LowRank& matrix, StreamRef stream);

/// Gram-Schmidt on the columns of a matrix of rows x rank, one by one. A column of zeros stays one.
void orthogonalize(float* matrix, std::size_t rows, std::size_t rank, StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda::kernels
