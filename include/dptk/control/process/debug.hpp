/// DPTK_DEBUG: how much dptk checks while a program runs.
#pragma once

#include <cstdint>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// `detail`: before each collective all ranks compare what they are about to do.
enum class DebugLevel : std::uint8_t { off, detail };

/// Read from DPTK_DEBUG when a group is made. Throws ArgumentError for a value that is none.
[[nodiscard]] DebugLevel debug_level();

/// What all processes of a job must have in common, as one word.
[[nodiscard]] std::string job_version();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/debug.ipp"
#include "dptk/core/error.hpp"
#endif
