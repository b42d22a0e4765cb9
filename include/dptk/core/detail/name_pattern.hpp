/// Patterns of names, as those of files in a shell.
#pragma once

#include <cstddef>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Whether a whole name matches a pattern, in which `*` stands for any characters, also none, and `?` for
/// one character. Other characters stand for themselves.
[[nodiscard]] constexpr bool matches_pattern(std::string_view name, std::string_view pattern) noexcept {
    std::size_t n = 0, p = 0;
    std::size_t star = std::string_view::npos,
                after_star = 0;  // the last `*`, and what follows it in the name
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            after_star = n;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
            ++p;
            ++n;
        } else if (star != std::string_view::npos) {  // the `*` stands for one more character
            p = star + 1;
            n = ++after_star;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}  // namespace DPTK_NAMESPACE::detail
