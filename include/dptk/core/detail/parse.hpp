/// Parsing of lines that consist of words and numbers, such as those that ranks exchange through a store.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Removes the next word from the line and returns it.
[[nodiscard]] std::string_view next_word(std::string_view& line) noexcept;

/// Removes the first line from the text, and returns it without its end.
[[nodiscard]] std::string_view next_line(std::string_view& text) noexcept;

/// Parses a word that is a number. Returns false if the word contains other text.
template <class Number>
[[nodiscard]] bool parse_number(std::string_view word, Number& number) noexcept {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc{} && end == word.data() + word.size();
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/parse.ipp"
#endif
