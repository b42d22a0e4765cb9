/// The products of low-rank matrix approximation (PowerSGD), in host memory.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/low_rank_matrices.hpp"

namespace DPTK_NAMESPACE::detail {

/// Computes left = elements * right.
void multiply(const LowRank& matrix);

/// Computes right = elements^T * left.
void multiply_transposed(const LowRank& matrix);

/// Computes elements = left * right^T.
void expand(const LowRank& matrix);

/// Orthonormalizes the columns of a matrix of rows x rank, by Gram-Schmidt. A column of zeros is unchanged.
void orthogonalize(float* matrix, std::size_t rows, std::size_t rank);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/low_rank.ipp"
#endif
