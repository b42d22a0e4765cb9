#pragma once

#include "dptk/comm/simulated/messages.hpp"

#include <algorithm>

#include "dptk/comm/collective.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void SimulatedInbox::deliver(int tag, SimulatedMessage message) {
    {
        const std::lock_guard lock(mutex_);
        const auto request = std::ranges::find_if(requests_, [&](const auto& other) {
            return other->tag == tag && (other->from == message.from || other->from == any_rank);
        });
        if (request == requests_.end()) {
            messages_.emplace(std::pair(tag, message.from), std::move(message));
            return;
        }
        (*request)->message = std::move(message);
        requests_.erase(request);
    }
    changed_.notify_all();
}

DPTK_INLINE std::shared_ptr<SimulatedRequest> SimulatedInbox::request(int from, int tag) {
    auto request = std::make_shared<SimulatedRequest>(from, tag);
    const std::lock_guard lock(mutex_);
    const auto match = from == any_rank ? find_soonest(tag) : find_oldest(from, tag);
    if (match == messages_.end()) {
        requests_.push_back(request);
    } else {
        request->message = std::move(match->second);
        messages_.erase(match);
    }
    return request;
}

DPTK_INLINE void SimulatedInbox::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
    changed_.notify_all();
}

DPTK_INLINE SimulatedInbox::Messages::iterator SimulatedInbox::find_oldest(int from, int tag) {
    const auto first = messages_.lower_bound({tag, from});
    return first != messages_.end() && first->first == std::pair(tag, from) ? first : messages_.end();
}

DPTK_INLINE SimulatedInbox::Messages::iterator SimulatedInbox::find_soonest(int tag) {
    const auto first = messages_.lower_bound({tag, 0});
    const auto end = messages_.lower_bound({tag + 1, 0});
    const auto soonest = std::min_element(
        first, end, [](const auto& a, const auto& b) { return a.second.reaches < b.second.reaches; });
    return soonest == end ? messages_.end() : soonest;
}

DPTK_INLINE SimulatedHub::SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                                       std::shared_ptr<JobHealth> health_)
    : network(network_),
      members(std::move(members_)),
      health(std::move(health_)),
      inboxes_(members.size()),
      left_(members.size()) {}

DPTK_INLINE std::shared_ptr<SimulatedHub> SimulatedHub::make(const SimulatedNetwork& network,
                                                             std::vector<int> members,
                                                             const std::shared_ptr<JobHealth>& health) {
    auto hub = std::make_shared<SimulatedHub>(network, std::move(members), health);
    health->subscribe(hub);
    return hub;
}

DPTK_INLINE bool SimulatedHub::is_lost(int rank, int from) const {
    if (health->failed()) return true;
    if (from != any_rank) return has_left(from);
    for (int other = 0; other < size(); ++other) {
        if (other != rank && !has_left(other)) return false;
    }
    return true;
}

DPTK_INLINE void SimulatedHub::check_peer(int peer) const {
    health->check();
    if (peer == any_rank) throw PeerLostError("all other ranks have left the group");
    if (has_left(peer)) throw PeerLostError(text("rank ", peer, " has left the group"));
}

DPTK_INLINE std::shared_ptr<SimulatedHub> SimulatedHub::part(std::string_view name,
                                                             const std::vector<int>& part_members) {
    const std::lock_guard lock(mutex_);
    Part& part = parts_[std::string(name)];
    if (!part.hub) part.hub = make(network, part_members, health);
    std::shared_ptr<SimulatedHub> hub = part.hub;
    if (++part.taken == part_members.size()) parts_.erase(std::string(name));
    return hub;
}

DPTK_INLINE void SimulatedHub::leave(int rank) noexcept {
    left_[static_cast<std::size_t>(rank)] = true;
    wake();
}

DPTK_INLINE void SimulatedHub::wake() noexcept {
    for (SimulatedInbox& inbox : inboxes_) inbox.wake();
}

}  // namespace DPTK_NAMESPACE::detail
