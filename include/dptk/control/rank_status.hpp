/// What the ranks of a job tell each other about themselves through the store, so that a rank that waits can
/// say for whom.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/text.hpp"

namespace dptk {

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

    [[nodiscard]] const ChannelStatus* channel(std::string_view name) const noexcept {
        for (const ChannelStatus& other : channels) {
            if (other.name == name) return &other;
        }
        return nullptr;
    }
};

namespace detail {

/// Seconds for messages: "12.3 s".
[[nodiscard]] inline std::string seconds_text(std::chrono::milliseconds duration) {
    const std::int64_t tenths = (duration.count() + 50) / 100;
    return text(tenths / 10, '.', tenths % 10, " s");
}

/// Cuts the next word off the line.
[[nodiscard]] inline std::string_view next_word(std::string_view& line) noexcept {
    const std::size_t end = line.find(' ');
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    return word;
}

template <class Number>
[[nodiscard]] bool parse_number(std::string_view word, Number& number) noexcept {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc{} && end == word.data() + word.size();
}

}  // namespace detail

/// A line with the beat, then one per channel: name, sequence, active or idle, milliseconds, peer, call.
[[nodiscard]] inline std::string to_text(const RankStatus& status) {
    std::string out = detail::text(status.beat, '\n');
    for (const ChannelStatus& channel : status.channels) {
        out += detail::text(channel.name, ' ', channel.sequence, channel.active ? " active " : " idle ",
                            channel.duration.count(), ' ', channel.peer, ' ', channel.call, '\n');
    }
    return out;
}

/// Nothing where the text is no status.
[[nodiscard]] inline std::optional<RankStatus> parse_rank_status(std::string_view text) {
    RankStatus status;
    bool first = true;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (first) {
            if (!detail::parse_number(line, status.beat)) return std::nullopt;
            first = false;
            continue;
        }
        ChannelStatus channel;
        std::int64_t milliseconds = 0;
        channel.name = detail::next_word(line);
        if (!detail::parse_number(detail::next_word(line), channel.sequence)) return std::nullopt;
        channel.active = detail::next_word(line) == "active";
        if (!detail::parse_number(detail::next_word(line), milliseconds)) return std::nullopt;
        if (!detail::parse_number(detail::next_word(line), channel.peer)) return std::nullopt;
        channel.duration = std::chrono::milliseconds(milliseconds);
        channel.call = line;
        status.channels.push_back(std::move(channel));
    }
    if (first) return std::nullopt;
    return status;
}

}  // namespace dptk
