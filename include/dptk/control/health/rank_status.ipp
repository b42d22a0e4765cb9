#pragma once

#include "dptk/control/health/rank_status.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE const ChannelStatus* RankStatus::channel(std::string_view name) const noexcept {
    for (const ChannelStatus& other : channels) {
        if (other.name == name) return &other;
    }
    return nullptr;
}

DPTK_INLINE std::string seconds_text(std::chrono::milliseconds duration) {
    const std::int64_t tenths = (duration.count() + 50) / 100;
    return text(tenths / 10, '.', tenths % 10, " s");
}

DPTK_INLINE std::string to_text(const RankStatus& status) {
    std::string out = text(status.beat, '\n');
    for (const ChannelStatus& channel : status.channels) {
        const std::string_view state = channel.is_awaited ? " awaited "
                                       : channel.active   ? " active "
                                                          : " idle ";
        out += text(channel.name, ' ', channel.sequence, ' ', channel.hash, state, channel.duration.count(),
                    ' ', channel.peer, ' ', channel.call, '\n');
    }
    return out;
}

DPTK_INLINE std::optional<RankStatus> parse_rank_status(std::string_view text) {
    RankStatus status;
    bool first = true;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (first) {
            if (!parse_number(line, status.beat)) return std::nullopt;
            first = false;
            continue;
        }
        ChannelStatus channel;
        std::int64_t milliseconds = 0;
        channel.name = next_word(line);
        if (!parse_number(next_word(line), channel.sequence)) return std::nullopt;
        if (!parse_number(next_word(line), channel.hash)) return std::nullopt;
        const std::string_view state = next_word(line);
        channel.is_awaited = state == "awaited";
        channel.active = channel.is_awaited || state == "active";
        if (!parse_number(next_word(line), milliseconds)) return std::nullopt;
        if (!parse_number(next_word(line), channel.peer)) return std::nullopt;
        channel.duration = std::chrono::milliseconds(milliseconds);
        channel.call = line;
        status.channels.push_back(std::move(channel));
    }
    if (first) return std::nullopt;
    return status;
}

}  // namespace DPTK_NAMESPACE::detail
