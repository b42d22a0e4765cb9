/// What the ranks of a job tell each other about themselves through the store, so that a rank that waits can
/// say for whom.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// One channel of a rank: the last call begun on it, whether the rank is still in it, and since when.
struct ChannelStatus {
    std::string name;
    std::uint64_t sequence = 0;
    bool active = false;
    std::chrono::milliseconds duration{0};
    /// The rank whose message the call waits for; -1 where it is none.
    int peer = -1;
    std::string call;
};

struct RankStatus {
    /// Counts up while the rank lives.
    std::uint64_t beat = 0;
    std::vector<ChannelStatus> channels;

    [[nodiscard]] const ChannelStatus* channel(std::string_view name) const noexcept;
};

/// Seconds for messages: "12.3 s".
[[nodiscard]] std::string seconds_text(std::chrono::milliseconds duration);

/// Cuts the next word off the line.
[[nodiscard]] std::string_view next_word(std::string_view& line) noexcept;

template <class Number>
[[nodiscard]] bool parse_number(std::string_view word, Number& number) noexcept {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc{} && end == word.data() + word.size();
}

/// A line with the beat, then one per channel: name, sequence, active or idle, milliseconds, peer, call.
[[nodiscard]] std::string to_text(const RankStatus& status);

/// Nothing where the text is no status.
[[nodiscard]] std::optional<RankStatus> parse_rank_status(std::string_view text);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/rank_status.ipp"
#endif
