/// Texts of numbers with a decimal point, whatever the program's locale is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the number with this many digits after the decimal point. As printf's "%.*f".
[[nodiscard]] std::string fixed_text(double number, int digits);

/// Returns the number with at most this many significant digits. As printf's "%.*g".
[[nodiscard]] std::string general_text(double number, int digits);

/// Returns the text in a field of a width in bytes, with spaces before it.
[[nodiscard]] std::string padded(std::string_view text, std::size_t width);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/number_text.ipp"
#endif
