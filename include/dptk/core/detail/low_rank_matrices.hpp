/// LowRank, the memory of a matrix and of two thin matrices whose product approximates that matrix; the
/// argument of PowerSGD's products and CUDA kernels. ddp/detail/low_rank.hpp has the products on the host.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The matrices elements (rows x columns), left (rows x rank) and right (columns x rank), all row-major.
struct LowRank {
    float* elements = nullptr;
    float* left = nullptr;
    float* right = nullptr;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;
};

}  // namespace DPTK_NAMESPACE::detail
