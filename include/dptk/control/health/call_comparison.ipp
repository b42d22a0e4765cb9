#pragma once

#include "dptk/control/health/call_comparison.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string CallRequest::reply_key(std::size_t rank) {
    return text("calls/", rank);
}

DPTK_INLINE std::string CallRequest::to_text() const {
    return text(one, ' ', other, ' ', after, ' ', until, ' ', channel);
}

DPTK_INLINE std::optional<CallRequest> CallRequest::parse(std::string_view text) {
    CallRequest request;
    const bool is_valid =
        parse_number(next_word(text), request.one) && parse_number(next_word(text), request.other) &&
        parse_number(next_word(text), request.after) && parse_number(next_word(text), request.until);
    request.channel = text;
    return is_valid ? std::optional(std::move(request)) : std::nullopt;
}

DPTK_INLINE std::optional<CallDifference> find_difference(std::span<const RankStatus* const> ranks) {
    struct Known {
        std::uint32_t hash;
        std::size_t rank;
    };
    std::map<std::string_view, std::map<std::uint64_t, Known>> ended;  // by channel and number
    std::optional<CallDifference> found;
    std::set<std::string_view> repeated;
    for (const RankStatus* const rank : ranks) {
        std::set<std::string_view> names;
        for (const ChannelStatus& channel : rank->channels) {
            if (!names.insert(channel.name).second) repeated.insert(channel.name);
        }
    }
    const auto compare = [&](std::size_t rank, const ChannelStatus& channel, const CallMark& mark) {
        const std::map<std::uint64_t, Known>& of_channel = ended[channel.name];
        const auto known = of_channel.find(mark.number);
        if (known == of_channel.end() || known->second.hash == mark.hash) return;
        if (repeated.contains(channel.name)) return;
        if (found && (found->channel != channel.name || found->differ_at <= mark.number)) return;
        found = {channel.name, known->second.rank, rank, 0, mark.number};
    };
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const ChannelStatus& channel : ranks[rank]->channels) {
            for (const CallMark& mark : channel.marks) {
                compare(rank, channel, mark);
                ended[channel.name].try_emplace(mark.number, Known{mark.hash, rank});
            }
        }
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const ChannelStatus& channel : ranks[rank]->channels) {
            if (channel.active_mark) compare(rank, channel, *channel.active_mark);
        }
    }
    if (!found) return std::nullopt;
    if (found->other < found->one) std::swap(found->one, found->other);
    const std::vector<CallMark>& of_other = ranks[found->other]->channel(found->channel)->marks;
    for (const CallMark& mark : ranks[found->one]->channel(found->channel)->marks) {
        const auto is_same = [&](const CallMark& theirs) {
            return theirs.number == mark.number && theirs.hash == mark.hash;
        };
        if (mark.number < found->differ_at && detail::any_of(of_other, is_same))
            found->same_until = std::max(found->same_until, mark.number);
    }
    return found;
}

DPTK_INLINE std::optional<std::pair<std::string, std::string>> differing_calls(
    const CallDifference& difference, std::span<const NumberedCall> of_one,
    std::span<const NumberedCall> of_other) {
    for (std::uint64_t number = difference.same_until + 1; number <= difference.differ_at; ++number) {
        const auto one = detail::find(of_one, number, &NumberedCall::number);
        const auto other = detail::find(of_other, number, &NumberedCall::number);
        if (one == of_one.end() || other == of_other.end()) return std::nullopt;
        if (one->text != other->text) return std::pair(one->text, other->text);
    }
    return std::nullopt;
}

DPTK_INLINE std::string describe(const CallDifference& difference,
                                 const std::optional<std::pair<std::string, std::string>>& calls,
                                 std::span<const std::string> labels) {
    const std::string& one = labels[difference.one];
    const std::string& other = labels[difference.other];
    if (calls) {
        return text("calls differ between ranks: ", one, " calls ", calls->first, ", and ", other, " calls ",
                    calls->second);
    }
    return text("calls differ between ranks: ", one, " and ", other,
                " have not made the same calls on group ", group_of(difference.channel), " after #",
                difference.same_until, " and until #", difference.differ_at);
}

}  // namespace DPTK_NAMESPACE::detail
