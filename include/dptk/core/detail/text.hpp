/// Builds messages by concatenating strings and numbers. GCC 12 has no std::format, and <sstream> slows
/// compilation.
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

void append_number(std::string& out, long long number);
void append_number(std::string& out, unsigned long long number);
/// Appends the shortest decimal number that reads back as the same value.
void append_number(std::string& out, double number);
void append_number(std::string& out, float number);

template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
void append_text(std::string& out, Number piece) {
    if constexpr (std::same_as<Number, float>) {
        append_number(out, piece);
    } else if constexpr (std::floating_point<Number>) {
        append_number(out, static_cast<double>(piece));
    } else if constexpr (std::signed_integral<Number>) {
        append_number(out, static_cast<long long>(piece));
    } else {
        append_number(out, static_cast<unsigned long long>(piece));
    }
}

/// Concatenates the pieces: text("rank ", 3, " of ", 4).
template <class... Pieces>
[[nodiscard]] std::string text(const Pieces&... pieces) {
    std::string out;
    (append_text(out, pieces), ...);
    return out;
}

/// Formats a shape: [64, 3, 3, 3].
[[nodiscard]] std::string shape_text(std::span<const std::size_t> shape);

/// Formats a list of numbers: "0, 2, 3".
[[nodiscard]] std::string list_text(std::span<const int> numbers);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/text.ipp"
#endif
