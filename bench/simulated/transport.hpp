/// The transport of a rank in a simulated network: messages that take time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "messages.hpp"
#include "network.hpp"

namespace DPTK_NAMESPACE {

/// Brings messages alone. Made by launch_simulated.
class SimulatedTransport {
  public:
    static constexpr bool interruptible = true;

    /// One rank's end of the network.
    SimulatedTransport(std::shared_ptr<detail::SimulatedHub> hub, std::shared_ptr<detail::SimulatedRank> self,
                       std::shared_ptr<detail::ControlPlane> control);

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "simulated"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return control_; }

    [[nodiscard]] int local_rank() const noexcept { return count_on_host(rank_); }
    [[nodiscard]] int local_size() const noexcept;

    void send(const Buffer& buffer, int to, int tag);
    void recv(const Buffer& buffer, int from, int tag);

    /// Of the messages that were sent by now, the one that arrives first.
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag);

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag);

    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message);

    /// In virtual time all happens on the rank's own thread: a second one would make it a matter of chance.
    [[nodiscard]] bool progresses_by_caller() const noexcept;
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective&) { return nullptr; }

    /// Takes no time.
    [[nodiscard]] SimulatedTransport duplicate();

    /// Takes no time. The ranks of a part need not meet the others.
    [[nodiscard]] SimulatedTransport subgroup(std::span<const int> ranks, std::string_view name);

    void leave() noexcept { hub_->leave(rank_); }

  private:
    [[nodiscard]] int position(int number) const;

    /// How many of the ranks below `end` are on this host.
    [[nodiscard]] int count_on_host(int end) const noexcept;

    std::shared_ptr<detail::SimulatedHub> hub_;
    std::shared_ptr<detail::SimulatedRank> self_;
    std::shared_ptr<detail::ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
};

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

/// A message of this rank that goes on by itself.
class SimulatedWork : public WorkState {
  public:
    SimulatedWork(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self)
        : hub_(std::move(hub)), self_(std::move(self)) {}

    std::exception_ptr error() override {
        const std::lock_guard lock(mutex_);
        return error_.see();
    }

    std::exception_ptr unseen_error() override {
        const std::lock_guard lock(mutex_);
        return error_.unseen();
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
            error_.set(std::current_exception());
        }
    }

    /// Waits until `time`. Returns whether the work can end.
    [[nodiscard]] bool pass_until(SimulatedSeconds time, std::chrono::nanoseconds timeout) {
        if (self_->clock.pass_until(time, timeout)) return true;
        if (!hub_->job_state->failed()) return false;
        end([&] { hub_->job_state->check(); });
        return true;
    }

    const std::shared_ptr<SimulatedHub> hub_;
    const std::shared_ptr<SimulatedRank> self_;
    std::mutex mutex_;

  private:
    bool ended_ = false;
    WorkError error_;
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

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

inline SimulatedTransport::SimulatedTransport(std::shared_ptr<detail::SimulatedHub> hub,
                                              std::shared_ptr<detail::SimulatedRank> self,
                                              std::shared_ptr<detail::ControlPlane> control)
    : hub_(std::move(hub)),
      self_(std::move(self)),
      control_(std::move(control)),
      rank_(position(self_->number)) {}

inline int SimulatedTransport::local_size() const noexcept {
    return count_on_host(size());
}

inline void SimulatedTransport::send(const Buffer& buffer, int to, int tag) {
    Work(start({Verb::send, buffer, to, tag})).wait();
}

inline void SimulatedTransport::recv(const Buffer& buffer, int from, int tag) {
    Work(start({Verb::recv, buffer, from, tag})).wait();
}

inline int SimulatedTransport::recv_any(const Buffer& buffer, int tag) {
    return Work(start({Verb::recv, buffer, any_rank, tag})).source_rank();
}

inline void SimulatedTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    Work sent(start({Verb::send, out, to, tag}));
    recv(in, from, tag);
    sent.wait();
}

inline std::shared_ptr<WorkState> SimulatedTransport::start(const Message& message) {
    if (message.verb == Verb::recv)
        return std::make_shared<detail::SimulatedReceive>(hub_, self_, rank_, message);
    hub_->check_peer(message.peer);
    const SimulatedLink& link = hub_->network.link(self_->number, hub_->member(message.peer));
    const SimulatedSeconds length{static_cast<double>(message.buffer.bytes()) / link.bytes_per_second};
    const SimulatedSeconds begin = self_->sending.take(self_->clock.now(), length);
    const auto* data = static_cast<const std::byte*>(message.buffer.data);
    hub_->inbox(message.peer)
        .deliver(message.tag, {rank_, begin + link.latency, length, {data, data + message.buffer.bytes()}});
    return std::make_shared<detail::SimulatedSend>(hub_, self_, begin + length);
}

inline bool SimulatedTransport::progresses_by_caller() const noexcept {
    return hub_->network.time == SimulatedTime::virtual_clock;
}

inline SimulatedTransport SimulatedTransport::duplicate() {
    return {hub_->part(detail::text("duplicate ", duplicates_++), hub_->members), self_, control_};
}

inline SimulatedTransport SimulatedTransport::subgroup(std::span<const int> ranks, std::string_view name) {
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(hub_->member(rank));
    return {hub_->part(name, members), self_, control_};
}

inline int SimulatedTransport::position(int number) const {
    return static_cast<int>(std::ranges::find(hub_->members, number) - hub_->members.begin());
}

inline int SimulatedTransport::count_on_host(int end) const noexcept {
    int count = 0;
    for (int rank = 0; rank < end; ++rank) count += hub_->host(rank) == hub_->host(rank_) ? 1 : 0;
    return count;
}

}  // namespace DPTK_NAMESPACE
