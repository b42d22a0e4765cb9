/// Building messages from pieces. GCC 12 has no std::format, and <sstream> is dear to include.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

void append_text(std::string& out, std::string_view piece);

void append_text(std::string& out, char piece);

template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
void append_text(std::string& out, Number piece) {
    out += std::to_string(piece);
}

/// The pieces, one after the other: text("rank ", 3, " of ", 4).
template <class... Pieces>
[[nodiscard]] std::string text(const Pieces&... pieces) {
    std::string out;
    (append_text(out, pieces), ...);
    return out;
}

/// A shape as people write it: [64, 3, 3, 3].
[[nodiscard]] std::string shape_text(std::span<const std::size_t> shape);

/// "0, 2, 3"
[[nodiscard]] std::string list_text(std::span<const int> numbers);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/text.ipp"
#endif
