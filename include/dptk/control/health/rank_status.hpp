/// Rank status: what each rank publishes about itself in the store, so that a rank that waits can report
/// which ranks it waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/health/call_history.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A call that a rank has made: "all_reduce(sum, 4 x f32) #42".
struct NumberedCall {
    std::uint64_t number = 0;
    std::string text;
};

/// The status of one channel of a rank: its last call, whether that call is active, and the time since the
/// call began or, if it is no longer active, ended.
struct ChannelStatus {
    std::string name;
    std::uint64_t sequence = 0;
    bool active = false;
    std::chrono::milliseconds duration{0};
    /// The rank whose message the call waits for, CallTracker::any_peer, or CallTracker::no_peer.
    int peer = -1;
    std::string call;
    /// Whether the program itself waits in this channel, and can make no other call meanwhile.
    bool is_awaited = false;
    /// A hash of the call, which is the same on all ranks of a correct program. 0 if the call is not known,
    /// or if the channel carries messages.
    std::uint64_t hash = 0;
    /// Whether the rank has closed the channel.
    bool is_closed = false;
    /// Marks of the rank's calls that have ended, if the rank keeps a history of them.
    std::vector<CallMark> marks = {};
    /// The mark of the active call, if it is known.
    std::optional<CallMark> active_mark = {};
    /// The most recent calls, if the rank keeps a history of them.
    std::vector<NumberedCall> calls = {};
};

/// The training steps of a rank since its group was formed, and the time that it has spent in them.
struct StepProgress {
    std::uint64_t steps = 0;
    std::chrono::microseconds compute{0};  ///< from the beginning of a step to its last gradient
    std::chrono::microseconds waiting{0};  ///< in communication that does not overlap with computation

    friend bool operator==(const StepProgress&, const StepProgress&) = default;
};

struct RankStatus {
    /// The heartbeat counter, which increases while the rank is alive.
    std::uint64_t beat = 0;
    std::vector<ChannelStatus> channels;
    StepProgress progress = {};

    [[nodiscard]] const ChannelStatus* channel(std::string_view name) const noexcept;

    /// Returns what the rank does, for messages about a rank that waits for it in the group `group`: "has
    /// been in barrier #4 for 2.0 s".
    [[nodiscard]] std::string describe(std::string_view group) const;
};

/// Returns the name of the group that a channel belongs to: the channel of a group's messages has the name of
/// the group with a suffix.
[[nodiscard]] std::string_view group_of(std::string_view channel) noexcept;

/// Formats a duration in seconds for messages: "12.3 s".
[[nodiscard]] std::string seconds_text(std::chrono::milliseconds duration);

/// Serializes a status: one line with the heartbeat counter and the progress in microseconds, then one line
/// per channel with name, sequence number, hash, the word idle, active, awaited or closed, milliseconds, peer
/// and call. After the line of a channel with a history: one with '=' and its marks, the active one (or 0)
/// first, and one with '#' for each call.
[[nodiscard]] std::string to_text(const RankStatus& status);

/// Serializes calls: for each of them, one line with '#', number and text.
[[nodiscard]] std::string to_text(const std::vector<NumberedCall>& calls);

/// Parses calls. Ignores lines that are none.
[[nodiscard]] std::vector<NumberedCall> parse_calls(std::string_view text);

/// Parses a status. Returns nullopt if the text is not a status.
[[nodiscard]] std::optional<RankStatus> parse_rank_status(std::string_view text);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/rank_status.ipp"
#endif
