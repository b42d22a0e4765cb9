/// Message delivery in a simulated network: one inbox per rank, in which messages and receive requests are
/// matched.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "network.hpp"

namespace DPTK_NAMESPACE::detail {

/// A message in flight.
struct SimulatedMessage {
    int from = 0;
    /// Time at which the first byte reaches the receiver's link, and how long the message
    /// occupies that link.
    SimulatedSeconds first_byte_arrival{0};
    SimulatedSeconds duration{0};
    std::vector<std::byte> bytes = {};

    /// Returns the arrival time if the receiver's link is free.
    [[nodiscard]] SimulatedSeconds earliest_arrival() const noexcept { return first_byte_arrival + duration; }
};

/// A receive request, for a message from one rank or from any rank.
struct SimulatedRequest {
    SimulatedRequest(int from_, int tag_) : from(from_), tag(tag_) {}

    const int from;
    const int tag;
    std::optional<SimulatedMessage> message;
};

/// Holds the messages for one rank of a group until they are received.
class SimulatedInbox {
  public:
    void deliver(int tag, SimulatedMessage message);

    /// Requests a message. Requests are served in the order in which they were made.
    [[nodiscard]] std::shared_ptr<SimulatedRequest> request(int from, int tag);

    enum class Outcome : std::uint8_t { message, lost, timeout };

    /// Blocks until the request has its message, until is_lost() returns true, or until `timeout` has
    /// passed.
    template <class IsLost>
    [[nodiscard]] Outcome wait(const SimulatedRequest& request, std::chrono::nanoseconds timeout,
                               IsLost&& is_lost) {
        std::unique_lock lock(mutex_);
        const auto over = [&] { return request.message.has_value() || is_lost(); };
        if (timeout == std::chrono::nanoseconds::max()) {
            changed_.wait(lock, over);
        } else if (!changed_.wait_for(lock, timeout, over)) {
            return Outcome::timeout;
        }
        return request.message.has_value() ? Outcome::message : Outcome::lost;
    }

    void wake() noexcept;

  private:
    /// Messages by tag and sender; equal keys are in the order in which they were sent.
    using Messages = std::multimap<std::pair<int, int>, SimulatedMessage>;

    [[nodiscard]] Messages::iterator find_oldest(int from, int tag);

    [[nodiscard]] Messages::iterator find_earliest(int tag);

    std::mutex mutex_;
    std::condition_variable changed_;
    Messages messages_;
    std::list<std::shared_ptr<SimulatedRequest>> requests_;
};

/// State that the ranks of one group share, with one inbox per rank.
class SimulatedHub final : public FailureListener {
  public:
    SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                 std::shared_ptr<JobState> job_state_);

    /// Creates a hub that is notified when the job fails.
    [[nodiscard]] static std::shared_ptr<SimulatedHub> make(const SimulatedNetwork& network,
                                                            std::vector<int> members,
                                                            const std::shared_ptr<JobState>& job_state);

    const SimulatedNetwork network;
    /// The group's ranks, as the network numbers them.
    const std::vector<int> members;
    const std::shared_ptr<JobState> job_state;

    [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
    [[nodiscard]] int member(int rank) const noexcept { return members[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int host(int rank) const noexcept { return member(rank) / network.ranks_per_host; }
    [[nodiscard]] SimulatedInbox& inbox(int rank) { return inboxes_[static_cast<std::size_t>(rank)]; }

    [[nodiscard]] bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }

    /// Returns whether `rank` can no longer receive a message from `from`, since the job has failed or the
    /// sender has left.
    [[nodiscard]] bool is_lost(int rank, int from) const;

    /// Throws PeerLostError if the job has failed or the peer has left.
    void check_peer(int peer) const;

    /// Returns the hub of that name for a subgroup of the network's ranks; the first caller creates it.
    [[nodiscard]] std::shared_ptr<SimulatedHub> part(std::string_view name,
                                                     const std::vector<int>& part_members);

    /// Records that this rank sends no further messages.
    void leave(int rank) noexcept;

    inline void wake() noexcept override;

  private:
    struct Part {
        std::shared_ptr<SimulatedHub> hub;
        std::size_t taken = 0;
    };

    std::vector<SimulatedInbox> inboxes_;
    std::vector<std::atomic<bool>> left_;
    std::mutex mutex_;
    std::map<std::string, Part, std::less<>> parts_;
};

inline void SimulatedInbox::deliver(int tag, SimulatedMessage message) {
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

inline std::shared_ptr<SimulatedRequest> SimulatedInbox::request(int from, int tag) {
    auto request = std::make_shared<SimulatedRequest>(from, tag);
    const std::lock_guard lock(mutex_);
    const auto match = from == any_rank ? find_earliest(tag) : find_oldest(from, tag);
    if (match == messages_.end()) {
        requests_.push_back(request);
    } else {
        request->message = std::move(match->second);
        messages_.erase(match);
    }
    return request;
}

inline void SimulatedInbox::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // a thread that has checked the condition is waiting by now
    changed_.notify_all();
}

inline SimulatedInbox::Messages::iterator SimulatedInbox::find_oldest(int from, int tag) {
    const auto first = messages_.lower_bound({tag, from});
    return first != messages_.end() && first->first == std::pair(tag, from) ? first : messages_.end();
}

inline SimulatedInbox::Messages::iterator SimulatedInbox::find_earliest(int tag) {
    const auto first = messages_.lower_bound({tag, 0});
    const auto end = messages_.lower_bound({tag + 1, 0});
    const auto earliest = std::min_element(first, end, [](const auto& a, const auto& b) {
        return a.second.first_byte_arrival < b.second.first_byte_arrival;
    });
    return earliest == end ? messages_.end() : earliest;
}

inline SimulatedHub::SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                                  std::shared_ptr<JobState> job_state_)
    : network(network_),
      members(std::move(members_)),
      job_state(std::move(job_state_)),
      inboxes_(members.size()),
      left_(members.size()) {}

inline std::shared_ptr<SimulatedHub> SimulatedHub::make(const SimulatedNetwork& network,
                                                        std::vector<int> members,
                                                        const std::shared_ptr<JobState>& job_state) {
    auto hub = std::make_shared<SimulatedHub>(network, std::move(members), job_state);
    job_state->subscribe(hub);
    return hub;
}

inline bool SimulatedHub::is_lost(int rank, int from) const {
    if (job_state->failed()) return true;
    if (from != any_rank) return has_left(from);
    for (int other = 0; other < size(); ++other) {
        if (other != rank && !has_left(other)) return false;
    }
    return true;
}

inline void SimulatedHub::check_peer(int peer) const {
    job_state->check();
    if (peer == any_rank) throw PeerLostError("all other ranks have left the group");
    if (has_left(peer)) throw PeerLostError(text("rank ", peer, " has left the group"));
}

inline std::shared_ptr<SimulatedHub> SimulatedHub::part(std::string_view name,
                                                        const std::vector<int>& part_members) {
    const std::lock_guard lock(mutex_);
    Part& part = parts_[std::string(name)];
    if (!part.hub) part.hub = make(network, part_members, job_state);
    std::shared_ptr<SimulatedHub> hub = part.hub;
    if (++part.taken == part_members.size()) parts_.erase(std::string(name));
    return hub;
}

inline void SimulatedHub::leave(int rank) noexcept {
    left_[static_cast<std::size_t>(rank)] = true;
    wake();
}

inline void SimulatedHub::wake() noexcept {
    for (SimulatedInbox& inbox : inboxes_) inbox.wake();
}

}  // namespace DPTK_NAMESPACE::detail
