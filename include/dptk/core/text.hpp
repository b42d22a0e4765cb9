/// Building messages from pieces. GCC 12 has no std::format, and <sstream> is dear to include.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>

namespace dptk::detail {

inline void append_text(std::string& out, std::string_view piece) {
    out += piece;
}

inline void append_text(std::string& out, char piece) {
    out += piece;
}

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
[[nodiscard]] inline std::string shape_text(std::span<const std::size_t> shape) {
    std::string out = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (i != 0) out += ", ";
        out += std::to_string(shape[i]);
    }
    return out + "]";
}

/// "0, 2, 3"
[[nodiscard]] inline std::string list_text(std::span<const int> numbers) {
    std::string out;
    for (const int number : numbers) out += text(out.empty() ? "" : ", ", number);
    return out;
}

}  // namespace dptk::detail
