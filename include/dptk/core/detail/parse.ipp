#pragma once

#include "dptk/core/detail/parse.hpp"

#include <cstddef>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string_view next_word(std::string_view& line) noexcept {
    const std::size_t end = line.find(' ');
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    return word;
}

}  // namespace DPTK_NAMESPACE::detail
