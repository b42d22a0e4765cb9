#pragma once

#include "dptk/comm/tcp/group.hpp"

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::list<TcpGroup::Arrived>::iterator TcpGroup::find_arrived(const TcpReceive& message) {
    return detail::find_if(arrived,
                           [&](const Arrived& each) { return fits(message, each.from, each.header); });
}

DPTK_INLINE TcpReceive* TcpGroup::take_wanted(int from, const TcpHeader& header) {
    const auto found =
        detail::find_if(wanted, [&](const TcpReceive* each) { return fits(*each, from, header); });
    if (found == wanted.end()) return nullptr;
    TcpReceive* const message = *found;
    wanted.erase(found);
    return message;
}

DPTK_INLINE std::optional<MessageInfo> TcpGroup::find_message(int from, int tag) const {
    for (const Arrived& each : arrived) {
        const std::int32_t its_tag = each.header.tag;
        if ((tag == any_tag ? its_tag >= 0 : its_tag == tag) && (from == any_rank || from == each.from))
            return MessageInfo{each.from, its_tag, each.header.bytes};
    }
    return std::nullopt;
}

DPTK_INLINE std::exception_ptr TcpGroup::mismatch(int from, const TcpHeader& found,
                                                  const TcpReceive& message) const {
    const TcpHeader& expected = message.header;
    if (found.call_number != expected.call_number || found.call_hash != expected.call_hash)
        return differing_calls(from, found, expected);
    if (found.bytes == expected.bytes) return nullptr;
    return std::make_exception_ptr(
        wrong_size(name_of(from), text(found.bytes, " bytes"), name_of(rank), expected.bytes));
}

DPTK_INLINE void TcpGroup::compare(int other, const TcpHeader& question) {
    if (call.call_number != question.call_number || call.call_hash == question.call_hash) return;
    std::erase_if(wanted, [&](TcpReceive* message) {
        if (message->header.tag != collective_message) return false;
        message->complete(differing_calls(other, question, call));
        return true;
    });
}

DPTK_INLINE void TcpGroup::fail_overtaken(int other, const TcpHeader& answer) {
    std::erase_if(wanted, [&](TcpReceive* message) {
        const TcpHeader& header = message->header;
        if (message->peer != other || header.tag != collective_message || header.call_number != answer.id)
            return false;
        message->complete(differing_calls(other, answer, header));
        return true;
    });
}

DPTK_INLINE void TcpGroup::add_awaited(std::set<int>& awaited, int from) const {
    if (from != any_rank) {
        awaited.insert(from);
        return;
    }
    for (const int other : ranks) {
        if (other != rank && !left.contains(other)) awaited.insert(other);
    }
}

DPTK_INLINE bool TcpGroup::fits(const TcpReceive& message, int from, const TcpHeader& header) noexcept {
    return message.header.tag == header.tag && (message.peer == any_rank || message.peer == from);
}

DPTK_INLINE std::exception_ptr TcpGroup::differing_calls(int other, const TcpHeader& theirs,
                                                         const TcpHeader& own) const {
    const int there = name_of(other);
    const int here = name_of(rank);
    const auto words = [](const TcpHeader& header) {
        return text(describe_packed({header.call_first, header.call_second}), " #", header.call_number);
    };
    return std::make_exception_ptr(
        MismatchError(text("calls differ between ranks: rank ", there, " calls ", words(theirs),
                           ", and rank ", here, " calls ", words(own)),
                      {.rank = here, .peer = there}));
}

DPTK_INLINE int TcpGroup::name_of(int number) const {
    const auto position = static_cast<std::size_t>(detail::find(ranks, number) - ranks.begin());
    return position < names.size() ? names[position] : static_cast<int>(position);
}

}  // namespace DPTK_NAMESPACE::detail
