/// Messages of a simulated network on their way: from who sends them to the inbox of who receives them.
#pragma once

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

#include "dptk/comm/simulated/network.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

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
class SimulatedHub final : public Wakeable {
  public:
    SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                 std::shared_ptr<JobHealth> health_);

    /// A hub that is woken by its job's failure.
    [[nodiscard]] static std::shared_ptr<SimulatedHub> make(const SimulatedNetwork& network,
                                                            std::vector<int> members,
                                                            const std::shared_ptr<JobHealth>& health);

    const SimulatedNetwork network;
    /// The network's numbers of the group's ranks.
    const std::vector<int> members;
    const std::shared_ptr<JobHealth> health;

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

    DPTK_INLINE void wake() noexcept override;

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

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/simulated/messages.ipp"
#endif
