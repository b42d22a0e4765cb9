/// What each rank wants of the memory of its host, by options and by the environment: DPTK_SHM and
/// DPTK_PROCESSORS.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// Trivially copyable. A word that makes no sense is told by check_wishes(), to all ranks.
struct NodeWishes {
    enum class Sharing { no, yes, wrong } sharing = Sharing::yes;
    /// How many the ranks of a host have together; 0 where it is not said, and -1 where it is no number.
    int processors = 0;

    [[nodiscard]] static NodeWishes from_environment(std::optional<int> processors) {
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

  private:
    [[nodiscard]] static std::string_view word(const char* variable) {
        const char* const value = std::getenv(variable);
        return value == nullptr ? "" : value;
    }
};

/// Throws ArgumentError, the same on all ranks, where one of them wants what cannot be.
inline void check_wishes(std::span<const NodeWishes> wishes) {
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

}  // namespace dptk::detail
