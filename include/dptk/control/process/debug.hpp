/// Debug level: reads DPTK_DEBUG, which enables runtime checks of collectives, as TORCH_DISTRIBUTED_DEBUG
/// does.
#pragma once

#include <cstdint>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How much dptk checks at run time. With `detail`, all ranks compare their arguments before each
/// collective.
enum class DebugLevel : std::uint8_t { off, detail };

/// Reads DPTK_DEBUG; called when a group is created. Throws ArgumentError if the value is invalid.
[[nodiscard]] DebugLevel debug_level();

/// Returns a word that must be equal on all processes of a job: the version of dptk and the debug level.
[[nodiscard]] std::string job_version();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/debug.ipp"
#endif
