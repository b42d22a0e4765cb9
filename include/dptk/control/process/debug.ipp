#pragma once

#include "dptk/control/process/debug.hpp"

#include <cstdlib>
#include <string_view>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/version.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DebugLevel debug_level() {
    const char* value = std::getenv("DPTK_DEBUG");
    const std::string_view level = value == nullptr ? "" : value;
    if (level.empty() || level == "off") return DebugLevel::off;
    if (level == "detail") return DebugLevel::detail;
    throw ArgumentError(text("invalid DPTK_DEBUG='", level, "': expected off or detail"));
}

DPTK_INLINE std::string job_version() {
    std::string version = DPTK_VERSION;
    if (debug_level() == DebugLevel::detail) version += "+DPTK_DEBUG=detail";
    return version;
}

}  // namespace DPTK_NAMESPACE::detail
