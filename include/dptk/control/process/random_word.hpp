/// Random words, for unique names of runs and for tokens.
#pragma once

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns 32 hexadecimal digits from std::random_device.
[[nodiscard]] std::string random_word();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/random_word.ipp"
#endif
