/// A word that nobody else has: for the names of runs, and for tokens.
#pragma once

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// 32 hexadecimal digits from the system's source of randomness.
[[nodiscard]] std::string random_word();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/random_word.ipp"
#endif
