#pragma once

#include "dptk/core/detail/suggestion.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace DPTK_NAMESPACE::detail {

/// Returns the number of letters to insert, delete or replace that turns one word into the other.
[[nodiscard]] DPTK_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, replaced}));
        }
    }
    return row.back();
}

DPTK_INLINE std::string suggestion(std::string_view word, std::span<const std::string> names) {
    const std::string* nearest = nullptr;
    std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& name : names) {
        const std::size_t distance = edit_distance(word, name);
        if (distance < least) {
            least = distance;
            nearest = &name;
        }
    }
    return nearest == nullptr ? "" : "; did you mean " + *nearest + "?";
}

}  // namespace DPTK_NAMESPACE::detail
