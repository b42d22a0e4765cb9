#pragma once

#include "dptk/comm/shm/settings.hpp"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ShmSettings ShmSettings::from_environment(std::optional<int> processors) {
    ShmSettings settings;
    const std::string_view sharing = word("DPTK_SHM");
    if (sharing == "0") settings.sharing = Sharing::no;
    if (!sharing.empty() && sharing != "0" && sharing != "1") settings.sharing = Sharing::wrong;
    const std::string_view count = word("DPTK_PROCESSORS");
    if (!count.empty()) {
        const char* const end = count.data() + count.size();
        const auto [stop, error] = std::from_chars(count.data(), end, settings.processors);
        if (error != std::errc() || stop != end || settings.processors < 1) settings.processors = -1;
    }
    if (processors) settings.processors = *processors > 0 ? *processors : -1;
    return settings;
}

DPTK_INLINE std::string_view ShmSettings::word(const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

DPTK_INLINE void check_settings(std::span<const ShmSettings> settings) {
    for (std::size_t rank = 0; rank < settings.size(); ++rank) {
        const bool wrong_sharing = settings[rank].sharing == ShmSettings::Sharing::wrong;
        if (!wrong_sharing && settings[rank].processors >= 0) continue;
        ArgumentError error(text("rank ", rank, ": ",
                                 wrong_sharing ? "invalid DPTK_SHM (whether ranks of one host share "
                                                 "memory): expected 0 or 1"
                                               : "invalid DPTK_PROCESSORS, or ShmOptions::processors (how "
                                                 "many processors the ranks of a host have together): "
                                                 "expected a number above 0"));
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }
}

DPTK_INLINE void check_own_settings() {
    const ShmSettings own = ShmSettings::from_environment(std::nullopt);
    check_settings({&own, 1});
}

}  // namespace DPTK_NAMESPACE::detail
