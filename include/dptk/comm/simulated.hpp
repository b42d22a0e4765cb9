/// Ranks that are threads of one process, and whose messages take the time that a network would:
/// launch_simulated(network, fn) runs fn as the ranks of a SimulatedNetwork. For comparing algorithms, bucket
/// sizes and networks that one does not have, and for seeing what overlap hides.
///
/// Collectives are carried out by the algorithms of comm/algorithms/, over send and recv. Messages are
/// copied, and wait for nobody: send returns when the rank's link is free again.
///
/// Overlap of collectives shows in real time alone, where background work takes time but no CPU. In virtual
/// time, one that was started is carried out when somebody waits for it, or asks whether it is done, and
/// takes its time then; where several groups have some, all ranks must wait for them in the same order.
/// Messages that were started go on in both kinds of time.
///
/// Virtual times depend on nothing but the program, unless it asks for a message from any rank, or whether
/// one has come. A loop that asks must compute meanwhile, since virtual time passes by compute() and messages
/// alone.
///
/// What counts are bytes over bytes per second: a buffer of a thousandth of the size, over links of a
/// thousandth of the bandwidth, takes the same time, and lets a thousand ranks have their buffers in one
/// memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/simulated_network.hpp"
#include "dptk/comm/thread.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/deadline.hpp"
#include "dptk/control/in_process_store.hpp"

namespace dptk {

namespace detail {

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
    void deliver(int tag, SimulatedMessage message) {
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

    /// Asks for a message. Requests are served in the order in which they were made.
    [[nodiscard]] std::shared_ptr<SimulatedRequest> request(int from, int tag) {
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

    void wake() noexcept {
        { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
        changed_.notify_all();
    }

  private:
    /// By tag and sender, each in the order in which they were sent.
    using Messages = std::multimap<std::pair<int, int>, SimulatedMessage>;

    [[nodiscard]] Messages::iterator find_oldest(int from, int tag) {
        const auto first = messages_.lower_bound({tag, from});
        return first != messages_.end() && first->first == std::pair(tag, from) ? first : messages_.end();
    }

    [[nodiscard]] Messages::iterator find_soonest(int tag) {
        const auto first = messages_.lower_bound({tag, 0});
        const auto end = messages_.lower_bound({tag + 1, 0});
        const auto soonest = std::min_element(
            first, end, [](const auto& a, const auto& b) { return a.second.reaches < b.second.reaches; });
        return soonest == end ? messages_.end() : soonest;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    Messages messages_;
    std::list<std::shared_ptr<SimulatedRequest>> requests_;
};

/// What the ranks of one group share: an inbox each.
class SimulatedHub final : public Wakeable {
  public:
    SimulatedHub(const SimulatedNetwork& network_, std::vector<int> members_,
                 std::shared_ptr<JobHealth> health_)
        : network(network_),
          members(std::move(members_)),
          health(std::move(health_)),
          inboxes_(members.size()),
          left_(members.size()) {}

    /// A hub that is woken by its job's failure.
    [[nodiscard]] static std::shared_ptr<SimulatedHub> make(const SimulatedNetwork& network,
                                                            std::vector<int> members,
                                                            const std::shared_ptr<JobHealth>& health) {
        auto hub = std::make_shared<SimulatedHub>(network, std::move(members), health);
        health->subscribe(hub);
        return hub;
    }

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
    [[nodiscard]] bool is_lost(int rank, int from) const {
        if (health->failed()) return true;
        if (from != any_rank) return has_left(from);
        for (int other = 0; other < size(); ++other) {
            if (other != rank && !has_left(other)) return false;
        }
        return true;
    }

    /// Throws PeerLostError where the job has failed, or the rank has left.
    void check_peer(int peer) const {
        health->check();
        if (peer == any_rank) throw PeerLostError("all other ranks have left the group");
        if (has_left(peer)) throw PeerLostError(text("rank ", peer, " has left the group"));
    }

    /// The hub of that name for some of the network's ranks: the first of them to come makes it.
    [[nodiscard]] std::shared_ptr<SimulatedHub> part(std::string_view name,
                                                     const std::vector<int>& part_members) {
        const std::lock_guard lock(mutex_);
        Part& part = parts_[std::string(name)];
        if (!part.hub) part.hub = make(network, part_members, health);
        std::shared_ptr<SimulatedHub> hub = part.hub;
        if (++part.taken == part_members.size()) parts_.erase(std::string(name));
        return hub;
    }

    /// This rank will not come again.
    void leave(int rank) noexcept {
        left_[static_cast<std::size_t>(rank)] = true;
        wake();
    }

    void wake() noexcept override {
        for (SimulatedInbox& inbox : inboxes_) inbox.wake();
    }

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

/// A message of this rank that goes on by itself.
class SimulatedWork : public WorkState {
  public:
    SimulatedWork(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self)
        : hub_(std::move(hub)), self_(std::move(self)) {}

    std::exception_ptr error() override {
        const std::lock_guard lock(mutex_);
        if (error_) seen_ = true;
        return error_;
    }

    std::exception_ptr unseen_error() override {
        const std::lock_guard lock(mutex_);
        return seen_ ? nullptr : error_;
    }

  protected:
    /// Ends the work, by an error where the check throws one.
    template <class Check>
    void end(Check&& check) {
        const std::lock_guard lock(mutex_);
        if (std::exchange(ended_, true)) return;
        try {
            check();
        } catch (const Error&) {
            error_ = std::current_exception();
        }
    }

    /// Waits until `time`. Returns whether the work can end.
    [[nodiscard]] bool pass_until(SimulatedSeconds time, std::chrono::nanoseconds timeout) {
        if (self_->clock.pass_until(time, timeout)) return true;
        if (!hub_->health->failed()) return false;
        end([&] { hub_->health->check(); });
        return true;
    }

    const std::shared_ptr<SimulatedHub> hub_;
    const std::shared_ptr<SimulatedRank> self_;
    std::mutex mutex_;

  private:
    bool ended_ = false;
    bool seen_ = false;
    std::exception_ptr error_;
};

/// The message itself has been delivered; it takes the link until `end`.
class SimulatedSend final : public SimulatedWork {
  public:
    SimulatedSend(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self,
                  SimulatedSeconds end)
        : SimulatedWork(std::move(hub), std::move(self)), end_(end) {}

    bool wait(std::chrono::nanoseconds timeout) override { return pass_until(end_, timeout); }

  private:
    const SimulatedSeconds end_;
};

/// The elements get to the buffer when somebody waits.
class SimulatedReceive final : public SimulatedWork {
  public:
    SimulatedReceive(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self, int rank,
                     const Message& message)
        : SimulatedWork(std::move(hub), std::move(self)),
          rank_(rank),
          buffer_(message.buffer),
          request_(inbox().request(message.peer, message.tag)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        using Outcome = SimulatedInbox::Outcome;
        const Deadline deadline(std::chrono::ceil<std::chrono::milliseconds>(timeout));
        const Outcome outcome =
            inbox().wait(*request_, timeout, [&] { return hub_->is_lost(rank_, request_->from); });
        if (outcome == Outcome::timeout) return false;
        if (outcome == Outcome::lost) {
            end([&] { hub_->check_peer(request_->from); });
            return true;
        }
        const bool asks = timeout <= std::chrono::nanoseconds::zero();
        if (!pass_until(arrival(asks), asks ? timeout : deadline.left())) return false;
        end([&] { take(); });
        return true;
    }

    [[nodiscard]] int source_rank() const override {
        return request_->message ? request_->message->from : -1;
    }

  private:
    [[nodiscard]] SimulatedInbox& inbox() { return hub_->inbox(rank_); }

    /// Whoever only asks takes no link: what he asks, and how often, changes no times.
    [[nodiscard]] SimulatedSeconds arrival(bool asks) {
        const SimulatedMessage& message = *request_->message;
        const std::lock_guard lock(mutex_);
        if (!arrival_ && asks) return message.soonest_arrival();
        if (!arrival_) arrival_ = self_->receiving.take(message.reaches, message.length) + message.length;
        return *arrival_;
    }

    void take() {
        const std::vector<std::byte> bytes = std::move(request_->message->bytes);
        if (bytes.size() != buffer_.bytes()) {
            throw MismatchError(text("rank ", request_->message->from, " sends ", bytes.size(),
                                     " bytes to rank ", rank_, ", which expects ", buffer_.bytes()));
        }
        if (!bytes.empty()) std::memcpy(buffer_.data, bytes.data(), bytes.size());
    }

    const int rank_;
    const Buffer buffer_;
    const std::shared_ptr<SimulatedRequest> request_;
    std::optional<SimulatedSeconds> arrival_;
};

}  // namespace detail

/// Brings messages alone. Made by launch_simulated.
class SimulatedTransport {
  public:
    static constexpr bool interruptible = true;

    SimulatedTransport(std::shared_ptr<detail::SimulatedHub> hub, std::shared_ptr<detail::SimulatedRank> self,
                       std::shared_ptr<ControlPlane> control)
        : hub_(std::move(hub)),
          self_(std::move(self)),
          control_(std::move(control)),
          rank_(position(self_->number)) {}

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "simulated"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return control_; }

    [[nodiscard]] int local_rank() const noexcept { return count_on_host(rank_); }
    [[nodiscard]] int local_size() const noexcept { return count_on_host(size()); }

    void send(const Buffer& buffer, int to, int tag) { Work(start({Verb::send, buffer, to, tag})).wait(); }
    void recv(const Buffer& buffer, int from, int tag) {
        Work(start({Verb::recv, buffer, from, tag})).wait();
    }

    /// Of the messages that were sent by now, the one that arrives first.
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) {
        return Work(start({Verb::recv, buffer, any_rank, tag})).source_rank();
    }

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
        Work sent(start({Verb::send, out, to, tag}));
        recv(in, from, tag);
        sent.wait();
    }

    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message) {
        if (message.verb == Verb::recv)
            return std::make_shared<detail::SimulatedReceive>(hub_, self_, rank_, message);
        hub_->check_peer(message.peer);
        const SimulatedLink& link = hub_->network.link(self_->number, hub_->member(message.peer));
        const SimulatedSeconds length{static_cast<double>(message.buffer.bytes()) / link.bytes_per_second};
        const SimulatedSeconds begin = self_->sending.take(self_->clock.now(), length);
        const auto* data = static_cast<const std::byte*>(message.buffer.data);
        hub_->inbox(message.peer)
            .deliver(message.tag,
                     {rank_, begin + link.latency, length, {data, data + message.buffer.bytes()}});
        return std::make_shared<detail::SimulatedSend>(hub_, self_, begin + length);
    }

    /// In virtual time all happens on the rank's own thread: a second one would make it a matter of chance.
    [[nodiscard]] bool progresses_by_caller() const noexcept {
        return hub_->network.time == SimulatedTime::virtual_clock;
    }
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective&) { return nullptr; }

    /// Takes no time.
    [[nodiscard]] SimulatedTransport duplicate() {
        return {hub_->part(detail::text("duplicate ", duplicates_++), hub_->members), self_, control_};
    }

    /// Takes no time. The ranks of a part need not meet the others.
    [[nodiscard]] SimulatedTransport subgroup(std::span<const int> ranks, std::string_view name) {
        std::vector<int> members;
        for (const int rank : ranks) members.push_back(hub_->member(rank));
        return {hub_->part(name, members), self_, control_};
    }

    void leave() noexcept { hub_->leave(rank_); }

  private:
    [[nodiscard]] int position(int number) const {
        return static_cast<int>(std::ranges::find(hub_->members, number) - hub_->members.begin());
    }

    /// How many of the ranks below `end` are on this host.
    [[nodiscard]] int count_on_host(int end) const noexcept {
        int count = 0;
        for (int rank = 0; rank < end; ++rank) count += hub_->host(rank) == hub_->host(rank_) ? 1 : 0;
        return count;
    }

    std::shared_ptr<detail::SimulatedHub> hub_;
    std::shared_ptr<detail::SimulatedRank> self_;
    std::shared_ptr<ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
};

using SimulatedCommunicator = BasicCommunicator<SimulatedTransport>;

namespace detail {

/// What the ranks of one launch_simulated share.
class SimulatedJob {
  public:
    SimulatedJob(const SimulatedNetwork& network, ThreadOptions options)
        : network_(network), options_(options) {}

    /// Joins a thread rank, whose job's health becomes the network's.
    [[nodiscard]] std::shared_ptr<SimulatedRank> join(int rank, const std::shared_ptr<JobHealth>& health) {
        std::call_once(begun_, [&] {
            std::vector<int> all(static_cast<std::size_t>(network_.ranks()));
            std::iota(all.begin(), all.end(), 0);
            hub_ = SimulatedHub::make(network_, std::move(all), health);
        });
        auto self = std::make_shared<SimulatedRank>(rank, network_, start_, health);
        health->subscribe({self, &self->clock});
        return self;
    }

    [[nodiscard]] SimulatedTransport transport(const std::shared_ptr<SimulatedRank>& self) const {
        return {hub_, self,
                ControlPlane::make({.rank = self->number,
                                    .size = network_.ranks(),
                                    .store = store_,
                                    .timeout = options_.timeout},
                                   hub_->health)};
    }

    void end(SimulatedSeconds time) {
        const std::lock_guard lock(mutex_);
        end_ = std::max(end_, time);
    }

    /// Of the rank that ended last.
    [[nodiscard]] SimulatedSeconds end() const { return end_; }

  private:
    const SimulatedNetwork network_;
    const ThreadOptions options_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    const std::shared_ptr<Store> store_ = std::make_shared<InProcessStore>();
    std::once_flag begun_;
    std::shared_ptr<SimulatedHub> hub_;
    std::mutex mutex_;
    SimulatedSeconds end_{0};
};

}  // namespace detail

/// Runs fn(ProcessGroup&, SimulatedClock&), or fn(ProcessGroup&), as the ranks of the network, one thread
/// each. Returns the time at which the last of them came to the end of fn.
///
/// Exceptions are those of launch_threads. Throws ArgumentError for a network without ranks, and for
/// latencies and bandwidths that cannot be.
template <class Fn>
SimulatedSeconds launch_simulated(const SimulatedNetwork& network, Fn&& fn, ThreadOptions options = {}) {
    detail::check_network(network);
    detail::SimulatedJob job(network, options);
    const auto run_rank = [&](ProcessGroup& group) {
        const std::shared_ptr<detail::SimulatedRank> self =
            job.join(group.rank(), group.channel().control().health());
        group = SimulatedCommunicator(job.transport(self));  // what launch_threads holds, and closes
        if constexpr (std::is_invocable_v<Fn&, ProcessGroup&, SimulatedClock&>) {
            fn(group, self->clock);
        } else {
            fn(group);
        }
        job.end(self->clock.now());
    };
    launch_threads(network.ranks(), run_rank, options);
    return job.end();
}

}  // namespace dptk
