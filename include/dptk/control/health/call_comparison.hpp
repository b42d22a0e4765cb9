/// Compares the calls that ranks have made. Uses the marks in their published statuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/health/rank_status.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Two ranks have not made the same calls on a channel.
struct CallDifference {
    std::string channel;
    /// The ranks.
    std::size_t one = 0;
    std::size_t other = 0;
    /// The ranks' calls up to this number are the same; 0 if none are known to be.
    std::uint64_t same_until = 0;
    /// The ranks' calls up to this number differ.
    std::uint64_t differ_at = 0;
};

/// What rank 0 asks two ranks for: their calls with numbers in (after, until]. Each replies with to_text() of
/// its calls, as far as it keeps them.
struct CallRequest {
    /// The key of the request.
    static constexpr std::string_view key = "calls";
    /// The key of a rank's reply.
    [[nodiscard]] static std::string reply_key(std::size_t rank);

    std::size_t one = 0;
    std::size_t other = 0;
    std::uint64_t after = 0;
    std::uint64_t until = 0;
    std::string channel = {};

    [[nodiscard]] std::string to_text() const;
    [[nodiscard]] static std::optional<CallRequest> parse(std::string_view text);
};

/// Compares the calls of all ranks. Returns the earliest difference on the first channel that has one. Calls
/// that are active on all ranks are not compared, since they may still throw an agreed error. Neither are
/// channels whose name is not unique, as those of communicators that the program creates over copies of a
/// transport.
[[nodiscard]] std::optional<CallDifference> find_difference(std::span<const RankStatus* const> ranks);

/// Returns the first call of each rank that differs from that of the other one; nullopt if the lists do not
/// contain all calls up to these.
[[nodiscard]] std::optional<std::pair<std::string, std::string>> differing_calls(
    const CallDifference& difference, std::span<const NumberedCall> of_one,
    std::span<const NumberedCall> of_other);

/// Returns the text of an error. `calls` may be unknown. `labels` contains the name of each rank.
[[nodiscard]] std::string describe(const CallDifference& difference,
                                   const std::optional<std::pair<std::string, std::string>>& calls,
                                   std::span<const std::string> labels);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/call_comparison.ipp"
#endif
