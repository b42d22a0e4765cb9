/// A matrix and two thin ones whose product it is, or nearly; in host memory here.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// elements (rows x columns), left (rows x rank) and right (columns x rank), each row by row.
struct LowRank {
    float* elements = nullptr;
    float* left = nullptr;
    float* right = nullptr;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;
};

/// left = elements * right
void multiply(const LowRank& matrix);

/// right = elements^T * left
void multiply_transposed(const LowRank& matrix);

/// elements = left * right^T
void expand(const LowRank& matrix);

/// Gram-Schmidt on the columns of a matrix of rows x rank, one by one. A column of zeros stays one.
void orthogonalize(float* matrix, std::size_t rows, std::size_t rank);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/low_rank.ipp"
#endif
