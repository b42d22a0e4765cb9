/// Suggestions for names with a typo in error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns "; did you mean NAME?" for the name that is most similar to `word`. Empty if none is similar.
[[nodiscard]] std::string suggestion(std::string_view word, std::span<const std::string> names);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/suggestion.ipp"
#endif
