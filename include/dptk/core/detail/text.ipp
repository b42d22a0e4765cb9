#pragma once

#include "dptk/core/detail/text.hpp"

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

DPTK_INLINE void append_number(std::string& out, double number) {
    out += std::to_string(number);
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
