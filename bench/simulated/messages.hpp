/// Messages of a simulated network on their way: from who sends them to the inbox of who receives them.
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

/// A message under way.
struct SimulatedMessage {
    int from = 0;
    /// When its first byte reaches the receiver's link, and for how long it takes that.
    SimulatedSeconds reaches{0};
    SimulatedSeconds length{0};
    std::vector<std::byte> bytes = {};

    /// Where nothing else takes the receiver's link.
    [[nodiscard]] SimulatedSeconds soonest_arrival() const noexcept { return reaches + length; }
};

/// A message to be received, from one rank or any.
struct SimulatedRequest {
    SimulatedRequest(int from_, int tag_) : from(from_), tag(tag_) {}

    const int from;
    const int tag;
    std::optional<SimulatedMessage> message;
};

/// Where the messages for one rank of a group wait for it.
class SimulatedInbox {
  public:
    void deliver(int tag, SimulatedMessage message);

    /// Asks for a message. Requests are served in the order in which they were made.
    [[nodiscard]] std::shared_ptr<SimulatedRequest> request(int from, int tag);

    enum class Outcome : std::uint8_t { message, lost, timeout };

    /// Waits until the request has its message, or `is_lost` says that it never will, for at most `timeout`.
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
    /// By tag and sender, each in the order in which they were sent.
    using Messages = std::multimap<std::pair<int, int>, SimulatedMessage>;

    [[nodiscard]] Messages::iterator find_oldest(int from, int tag);

    [[nodiscard]] Messages::iterator find_soonest(int tag);

    std::mutex mutex_;
    std::condition_variable changed_;
    Messages messages_;
    std::list<std::shared_ptr<SimulatedRequest>> requests_;
};

/// What the ranks of one group share: an inbox each.
class SimulatedHub final : public FailureListener {
  public:
    SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                 std::shared_ptr<JobState> job_state_);

    /// A hub that is woken by its job's failure.
    [[nodiscard]] static std::shared_ptr<SimulatedHub> make(const SimulatedNetwork& network,
                                                            std::vector<int> members,
                                                            const std::shared_ptr<JobState>& job_state);

    const SimulatedNetwork network;
    /// The network's numbers of the group's ranks.
    const std::vector<int> members;
    const std::shared_ptr<JobState> job_state;

    [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
    [[nodiscard]] int member(int rank) const noexcept { return members[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int host(int rank) const noexcept { return member(rank) / network.ranks_per_host; }
    [[nodiscard]] SimulatedInbox& inbox(int rank) { return inboxes_[static_cast<std::size_t>(rank)]; }

    [[nodiscard]] bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }

    /// Whether nobody will send such a message to `rank` any more.
    [[nodiscard]] bool is_lost(int rank, int from) const;

    /// Throws PeerLostError where the job has failed, or the rank has left.
    void check_peer(int peer) const;

    /// The hub of that name for some of the network's ranks: the first of them to come makes it.
    [[nodiscard]] std::shared_ptr<SimulatedHub> part(std::string_view name,
                                                     const std::vector<int>& part_members);

    /// This rank will not come again.
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

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE::detail {

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
    const auto match = from == any_rank ? find_soonest(tag) : find_oldest(from, tag);
    if (match == messages_.end()) {
        requests_.push_back(request);
    } else {
        request->message = std::move(match->second);
        messages_.erase(match);
    }
    return request;
}

inline void SimulatedInbox::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
    changed_.notify_all();
}

inline SimulatedInbox::Messages::iterator SimulatedInbox::find_oldest(int from, int tag) {
    const auto first = messages_.lower_bound({tag, from});
    return first != messages_.end() && first->first == std::pair(tag, from) ? first : messages_.end();
}

inline SimulatedInbox::Messages::iterator SimulatedInbox::find_soonest(int tag) {
    const auto first = messages_.lower_bound({tag, 0});
    const auto end = messages_.lower_bound({tag + 1, 0});
    const auto soonest = std::min_element(
        first, end, [](const auto& a, const auto& b) { return a.second.reaches < b.second.reaches; });
    return soonest == end ? messages_.end() : soonest;
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
