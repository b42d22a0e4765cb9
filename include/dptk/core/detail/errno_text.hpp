/// The system's errors in words.
#pragma once

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the system's description of an errno value, and what to do if this process has too few
/// descriptors.
[[nodiscard]] std::string errno_text(int error);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/errno_text.ipp"
#endif
