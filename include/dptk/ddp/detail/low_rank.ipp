#pragma once

#include "dptk/ddp/detail/low_rank.hpp"

#include <algorithm>
#include <cmath>

namespace DPTK_NAMESPACE::detail {

/// Calls action(element, left, right) for each pair of elements of `left` and `right` whose product is a
/// term of an element of left * right^T.
template <class Action>
void for_each_product(const LowRank& matrix, Action&& action) {
    for (std::size_t r = 0; r < matrix.rows; ++r) {
        for (std::size_t c = 0; c < matrix.columns; ++c) {
            float& element = matrix.elements[r * matrix.columns + c];
            for (std::size_t k = 0; k < matrix.rank; ++k)
                action(element, matrix.left[r * matrix.rank + k], matrix.right[c * matrix.rank + k]);
        }
    }
}

DPTK_INLINE void multiply(const LowRank& matrix) {
    std::fill_n(matrix.left, matrix.rows * matrix.rank, 0.0F);
    for_each_product(matrix, [](float element, float& left, float right) { left += element * right; });
}

DPTK_INLINE void multiply_transposed(const LowRank& matrix) {
    std::fill_n(matrix.right, matrix.columns * matrix.rank, 0.0F);
    for_each_product(matrix, [](float element, float left, float& right) { right += element * left; });
}

DPTK_INLINE void expand(const LowRank& matrix) {
    std::fill_n(matrix.elements, matrix.rows * matrix.columns, 0.0F);
    for_each_product(matrix, [](float& element, float left, float right) { element += left * right; });
}

DPTK_INLINE void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) {
    const auto dot = [&](std::size_t a, std::size_t b) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r)
            sum += static_cast<double>(matrix[r * rank + a]) * static_cast<double>(matrix[r * rank + b]);
        return sum;
    };
    for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t other = 0; other < k; ++other) {
            const auto share = static_cast<float>(dot(k, other));
            for (std::size_t r = 0; r < rows; ++r) matrix[r * rank + k] -= share * matrix[r * rank + other];
        }
        const double length = std::sqrt(dot(k, k));
        if (length == 0) continue;
        for (std::size_t r = 0; r < rows; ++r)
            matrix[r * rank + k] = static_cast<float>(static_cast<double>(matrix[r * rank + k]) / length);
    }
}

}  // namespace DPTK_NAMESPACE::detail
