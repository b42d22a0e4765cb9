#pragma once

#include "dptk/core/detail/number_text.hpp"

#include <charconv>
#include <limits>

namespace DPTK_NAMESPACE::detail {

/// `digits` is at most 20.
[[nodiscard]] DPTK_INLINE std::string formatted(double number, std::chars_format format, int digits) {
    char out[std::numeric_limits<double>::max_exponent10 + 24];
    return {out, std::to_chars(out, out + sizeof out, number, format, digits).ptr};
}

DPTK_INLINE std::string fixed_text(double number, int digits) {
    return formatted(number, std::chars_format::fixed, digits);
}

DPTK_INLINE std::string general_text(double number, int digits) {
    return formatted(number, std::chars_format::general, digits);
}

DPTK_INLINE std::string padded(std::string_view text, std::size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ').append(text);
}

}  // namespace DPTK_NAMESPACE::detail
