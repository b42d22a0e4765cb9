#pragma once

#include "dptk/core/detail/parse.hpp"

#include <cstddef>

namespace DPTK_NAMESPACE::detail {

/// Removes the text up to the first `end`, and returns it.
[[nodiscard]] DPTK_INLINE std::string_view take_until(char end, std::string_view& text) noexcept {
    const std::size_t position = text.find(end);
    const std::string_view out = text.substr(0, position);
    text.remove_prefix(position == std::string_view::npos ? text.size() : position + 1);
    return out;
}

DPTK_INLINE std::string_view next_word(std::string_view& line) noexcept {
    return take_until(' ', line);
}

DPTK_INLINE std::string_view next_line(std::string_view& text) noexcept {
    return take_until('\n', text);
}

}  // namespace DPTK_NAMESPACE::detail
