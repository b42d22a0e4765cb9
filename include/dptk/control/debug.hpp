/// DPTK_DEBUG: how much dptk checks while a program runs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"
#include "dptk/core/version.hpp"

namespace dptk {

/// `detail`: before each collective all ranks compare what they are about to do.
enum class DebugLevel : std::uint8_t { off, detail };

/// Read from DPTK_DEBUG when a group is made. Throws ArgumentError for a value that is none.
[[nodiscard]] inline DebugLevel debug_level() {
    const char* value = std::getenv("DPTK_DEBUG");
    const std::string_view level = value == nullptr ? "" : value;
    if (level.empty() || level == "off") return DebugLevel::off;
    if (level == "detail") return DebugLevel::detail;
    throw ArgumentError(detail::text("DPTK_DEBUG is \"", level, "\"; it may be off or detail"));
}

namespace detail {

/// What all processes of a job must have in common, as one word.
[[nodiscard]] inline std::string job_version() {
    std::string version = DPTK_VERSION;
    if (debug_level() == DebugLevel::detail) version += "+DPTK_DEBUG=detail";
    return version;
}

}  // namespace detail

}  // namespace dptk
