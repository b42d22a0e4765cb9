#pragma once

#include "dptk/core/detail/text.hpp"

#include <charconv>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void append_text(std::string& out, std::string_view piece) {
    out += piece;
}

DPTK_INLINE void append_text(std::string& out, char piece) {
    out += piece;
}

DPTK_INLINE void append_number(std::string& out, long long number) {
    out += std::to_string(number);
}

DPTK_INLINE void append_number(std::string& out, unsigned long long number) {
    out += std::to_string(number);
}

template <std::floating_point Number>
void append_shortest(std::string& out, Number number) {
    char digits[64];
    const std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits), number);
    out.append(digits, result.ptr);
}

DPTK_INLINE void append_number(std::string& out, double number) {
    append_shortest(out, number);
}

DPTK_INLINE void append_number(std::string& out, float number) {
    append_shortest(out, number);
}

DPTK_INLINE std::string shape_text(std::span<const std::size_t> shape) {
    std::string out = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (i != 0) out += ", ";
        out += std::to_string(shape[i]);
    }
    return out + "]";
}

DPTK_INLINE std::string list_text(std::span<const int> numbers) {
    std::string out;
    for (const int number : numbers) out += text(out.empty() ? "" : ", ", number);
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
