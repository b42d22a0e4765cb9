#pragma once

#include "dptk/control/health/rank_status.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE const ChannelStatus* RankStatus::channel(std::string_view name) const noexcept {
    for (const ChannelStatus& other : channels) {
        if (other.name == name) return &other;
    }
    return nullptr;
}

DPTK_INLINE std::string RankStatus::describe(std::string_view group) const {
    const auto is_closed = [](const ChannelStatus& each) { return each.is_closed; };
    if (!channels.empty() && detail::all_of(channels, is_closed)) return "has left its process group";
    const ChannelStatus* latest = nullptr;
    const ChannelStatus* own = nullptr;  // the channel of `group`, if the rank has closed it
    bool has_called = false;
    for (const ChannelStatus& channel : channels) {
        has_called = has_called || channel.sequence > 0;
        if (channel.is_closed) {
            if (channel.name == group) own = &channel;
        } else if (latest == nullptr || channel.active > latest->active ||
                   (channel.active == latest->active && channel.duration < latest->duration)) {
            latest = &channel;
        }
    }
    if (latest == nullptr || !has_called) return "has made no call yet";
    std::string out;
    if (own != nullptr) out = text("has closed group ", group, " after ", own->sequence, " calls, and ");
    if (!latest->active) return text(out, "has been in no call for ", seconds_text(latest->duration));
    const std::string_view other = group_of(latest->name);
    return text(out, "has been in ", latest->call,
                other == group ? std::string() : text(" of group ", other, " (not of group ", group, ')'),
                " for ", seconds_text(latest->duration));
}

DPTK_INLINE std::string_view group_of(std::string_view channel) noexcept {
    return channel.substr(0, channel.find('/'));
}

DPTK_INLINE std::string seconds_text(std::chrono::milliseconds duration) {
    const std::int64_t tenths = (duration.count() + 50) / 100;
    return text(tenths / 10, '.', tenths % 10, " s");
}

DPTK_INLINE std::string to_text(const RankStatus& status) {
    const StepProgress& progress = status.progress;
    std::string out = text(status.beat, ' ', progress.steps, ' ', progress.compute.count(), ' ',
                           progress.waiting.count(), '\n');
    for (const ChannelStatus& channel : status.channels) {
        const std::string_view state = channel.is_closed    ? " closed "
                                       : channel.is_awaited ? " awaited "
                                       : channel.active     ? " active "
                                                            : " idle ";
        out += text(channel.name, ' ', channel.sequence, ' ', channel.hash, state, channel.duration.count(),
                    ' ', channel.peer, ' ', channel.call, '\n');
        if (channel.active_mark || !channel.marks.empty()) {
            out += text("= ", channel.active_mark.value_or(CallMark{}).packed());
            for (const CallMark& mark : channel.marks) out += text(' ', mark.packed());
            out += '\n';
        }
        out += to_text(channel.calls);
    }
    return out;
}

DPTK_INLINE std::string to_text(const std::vector<NumberedCall>& calls) {
    std::string out;
    for (const NumberedCall& call : calls) out += text("# ", call.number, ' ', call.text, '\n');
    return out;
}

/// Parses the line of a call, and appends the call. Returns whether the line is valid.
[[nodiscard]] DPTK_INLINE bool parse_call(std::string_view line, std::vector<NumberedCall>& calls) {
    NumberedCall call;
    if (next_word(line) != "#" || !parse_number(next_word(line), call.number)) return false;
    call.text = line;
    calls.push_back(std::move(call));
    return true;
}

DPTK_INLINE std::vector<NumberedCall> parse_calls(std::string_view text) {
    std::vector<NumberedCall> calls;
    while (!text.empty()) static_cast<void>(parse_call(next_line(text), calls));
    return calls;
}

/// Parses the line of a channel's marks. Returns whether the line is valid.
[[nodiscard]] DPTK_INLINE bool parse_marks(std::string_view line, ChannelStatus& channel) {
    static_cast<void>(next_word(line));
    std::uint64_t packed = 0;
    if (!parse_number(next_word(line), packed)) return false;
    if (packed != 0) channel.active_mark = CallMark::from(packed);
    while (!line.empty()) {
        if (!parse_number(next_word(line), packed)) return false;
        channel.marks.push_back(CallMark::from(packed));
    }
    return true;
}

DPTK_INLINE std::optional<RankStatus> parse_rank_status(std::string_view text) {
    RankStatus status;
    bool first = true;
    while (!text.empty()) {
        std::string_view line = next_line(text);
        if (first) {
            std::int64_t compute = 0, waiting = 0;
            if (!parse_number(next_word(line), status.beat) ||
                !parse_number(next_word(line), status.progress.steps) ||
                !parse_number(next_word(line), compute) || !parse_number(next_word(line), waiting))
                return std::nullopt;
            status.progress.compute = std::chrono::microseconds(compute);
            status.progress.waiting = std::chrono::microseconds(waiting);
            first = false;
            continue;
        }
        if (line.starts_with('=') || line.starts_with('#')) {
            if (status.channels.empty()) return std::nullopt;
            ChannelStatus& before = status.channels.back();
            const bool is_valid =
                line.front() == '=' ? parse_marks(line, before) : parse_call(line, before.calls);
            if (!is_valid) return std::nullopt;
            continue;
        }
        ChannelStatus channel;
        std::int64_t milliseconds = 0;
        channel.name = next_word(line);
        if (!parse_number(next_word(line), channel.sequence)) return std::nullopt;
        if (!parse_number(next_word(line), channel.hash)) return std::nullopt;
        const std::string_view state = next_word(line);
        channel.is_closed = state == "closed";
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
