#pragma once

#include "dptk/control/health/call_comparison.hpp"

#include <algorithm>
#include <map>

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

/// Compares the calls of all ranks on one channel.
[[nodiscard]] DPTK_INLINE std::optional<CallDifference> find_difference_on(
    std::string_view channel, std::span<const RankStatus* const> ranks) {
    struct Known {
        std::uint32_t hash;
        std::size_t rank;
    };
    std::map<std::uint64_t, Known> ended;  // by number
    std::optional<CallDifference> found;
    const auto compare = [&](std::size_t rank, const CallMark& mark) {
        const auto known = ended.find(mark.number);
        if (known == ended.end() || known->second.hash == mark.hash) return;
        if (found && found->differ_at <= mark.number) return;
        found = {std::string(channel), known->second.rank, rank, 0, mark.number};
    };
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const ChannelStatus* const status = ranks[rank]->channel(channel);
        if (status == nullptr) continue;
        for (const CallMark& mark : status->marks) {
            compare(rank, mark);
            ended.try_emplace(mark.number, Known{mark.hash, rank});
        }
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const ChannelStatus* const status = ranks[rank]->channel(channel);
        if (status != nullptr && status->active_mark) compare(rank, *status->active_mark);
    }
    if (!found) return std::nullopt;
    if (found->other < found->one) std::swap(found->one, found->other);
    const std::vector<CallMark>& of_other = ranks[found->other]->channel(channel)->marks;
    for (const CallMark& mark : ranks[found->one]->channel(channel)->marks) {
        const auto same = [&](const CallMark& theirs) {
            return theirs.number == mark.number && theirs.hash == mark.hash;
        };
        if (mark.number < found->differ_at && detail::any_of(of_other, same))
            found->same_until = std::max(found->same_until, mark.number);
    }
    return found;
}

DPTK_INLINE std::optional<CallDifference> find_difference(std::span<const RankStatus* const> ranks) {
    std::vector<std::string_view> compared;
    for (const RankStatus* const rank : ranks) {
        for (const ChannelStatus& channel : rank->channels) {
            if (channel.marks.empty() || detail::contains(compared, std::string_view(channel.name))) continue;
            compared.push_back(channel.name);
            if (std::optional<CallDifference> found = find_difference_on(channel.name, ranks)) return found;
        }
    }
    return std::nullopt;
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

DPTK_INLINE std::vector<int> guilty_ranks(const CallDifference& difference,
                                          std::span<const RankStatus* const> ranks) {
    const auto agreeing_with = [&](std::size_t rank) {
        return detail::count_if(ranks, [&](const RankStatus* other) {
            const RankStatus* const both[] = {ranks[rank], other};
            return other->channel(difference.channel) != nullptr &&
                   !find_difference_on(difference.channel, both);
        });
    };
    const std::ptrdiff_t with_one = agreeing_with(difference.one);
    const std::ptrdiff_t with_other = agreeing_with(difference.other);
    std::vector<int> out;
    if (with_one <= with_other) out.push_back(static_cast<int>(difference.one));
    if (with_other <= with_one) out.push_back(static_cast<int>(difference.other));
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
