#pragma once

#include "dptk/data/computed_permutation.hpp"

#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void ComputedPermutation::fill_table(std::uint64_t key) {
    for (const std::uint16_t element : random_permutation<std::uint16_t>(size_, mix(key)))
        table_.push_back(element);
}

}  // namespace DPTK_NAMESPACE
