#pragma once

#include "dptk/comm/shm/settings.hpp"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <system_error>

#include "dptk/core/error.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NodeWishes NodeWishes::from_environment(std::optional<int> processors) {
    NodeWishes wishes;
    const std::string_view sharing = word("DPTK_SHM");
    if (sharing == "0") wishes.sharing = Sharing::no;
    if (!sharing.empty() && sharing != "0" && sharing != "1") wishes.sharing = Sharing::wrong;
    const std::string_view count = word("DPTK_PROCESSORS");
    if (!count.empty()) {
        const char* const end = count.data() + count.size();
        const auto [stop, error] = std::from_chars(count.data(), end, wishes.processors);
        if (error != std::errc() || stop != end || wishes.processors < 1) wishes.processors = -1;
    }
    if (processors) wishes.processors = *processors > 0 ? *processors : -1;
    return wishes;
}

DPTK_INLINE std::string_view NodeWishes::word(const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

DPTK_INLINE void check_wishes(std::span<const NodeWishes> wishes) {
    for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
        const bool wrong_sharing = wishes[rank].sharing == NodeWishes::Sharing::wrong;
        if (!wrong_sharing && wishes[rank].processors >= 0) continue;
        ArgumentError error(text("rank ", rank, ": ",
                                 wrong_sharing ? "DPTK_SHM, which says whether ranks of one host share "
                                                 "memory, is neither 0 nor 1"
                                               : "DPTK_PROCESSORS, or NodeOptions::processors, which says "
                                                 "how many the ranks of a host have together, is no number "
                                                 "above 0"));
        error.mark_agreed();
        throw error;
    }
}

}  // namespace DPTK_NAMESPACE::detail
