/// The transport of a rank in a simulated network: point-to-point messages with latency and bandwidth.
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
#include "dptk/comm/transport.hpp"
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

/// A transport that supports only messages. launch_simulated creates it.
class SimulatedTransport final : public Transport {
  public:
    /// Creates the transport of rank `self`.
    SimulatedTransport(std::shared_ptr<detail::SimulatedHub> hub, std::shared_ptr<detail::SimulatedRank> self,
                       std::shared_ptr<detail::ControlPlane> control);

    [[nodiscard]] int rank() const noexcept override { return rank_; }
    [[nodiscard]] int size() const noexcept override { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "simulated"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return control_; }

    [[nodiscard]] int local_rank() const noexcept override { return count_on_host(rank_); }
    [[nodiscard]] int local_size() const noexcept override;

    void send(const Buffer& buffer, int to, int tag) override;
    void recv(const Buffer& buffer, int from, int tag) override;

    /// Receives, of the messages that have been sent so far, the one that arrives first. Returns its source
    /// rank.
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) override;

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override;

    [[nodiscard]] std::shared_ptr<WorkState> start_message(const Message& message) override;

    /// The caller progresses calls in virtual time: a background thread would make the times
    /// nondeterministic.
    [[nodiscard]] TransportCapabilities capabilities() const override;

    /// Creates an independent transport over the same ranks. Takes no simulated time.
    [[nodiscard]] std::unique_ptr<Transport> duplicate() override;

    /// Creates a transport over some of the ranks, which need not synchronize with the others. Takes no
    /// simulated time.
    [[nodiscard]] std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                      std::string_view name) override;

    void leave() noexcept override { hub_->leave(rank_); }

  private:
    [[nodiscard]] int position(int number) const;

    /// Returns how many of the ranks below `end` are on this rank's host.
    [[nodiscard]] int count_on_host(int end) const noexcept;

    std::shared_ptr<detail::SimulatedHub> hub_;
    std::shared_ptr<detail::SimulatedRank> self_;
    std::shared_ptr<detail::ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
};

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

/// The work of a message of this rank, which completes without further calls.
class SimulatedWork : public WorkState {
  public:
    SimulatedWork(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self)
        : hub_(std::move(hub)), self_(std::move(self)) {}

    std::exception_ptr error() override {
        const std::lock_guard lock(mutex_);
        return error_.see();
    }

    std::exception_ptr unreported_error() override {
        const std::lock_guard lock(mutex_);
        return error_.unseen();
    }

  protected:
    /// Ends the work, with an error if the check throws one.
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

    /// Waits until `time`. Returns whether the work has ended: at that time, or because the job has failed.
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

/// The work of a send. The message has been delivered to the inbox already; it occupies the link until
/// `end`.
class SimulatedSend final : public SimulatedWork {
  public:
    SimulatedSend(std::shared_ptr<SimulatedHub> hub, std::shared_ptr<SimulatedRank> self,
                  SimulatedSeconds end)
        : SimulatedWork(std::move(hub), std::move(self)), end_(end) {}

    bool wait(std::chrono::nanoseconds timeout) override { return pass_until(end_, timeout); }

  private:
    const SimulatedSeconds end_;
};

/// The work of a receive. wait() copies the elements to the buffer.
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
        const bool polls = timeout <= std::chrono::nanoseconds::zero();
        if (!pass_until(arrival(polls), polls ? timeout : deadline.left())) return false;
        end([&] { copy_elements(); });
        return true;
    }

    [[nodiscard]] int source_rank() const override {
        return request_->message ? request_->message->from : -1;
    }

  private:
    [[nodiscard]] SimulatedInbox& inbox() { return hub_->inbox(rank_); }

    /// Returns the arrival time. Polling does not reserve the link, so that it does not change any times.
    [[nodiscard]] SimulatedSeconds arrival(bool polls) {
        const SimulatedMessage& message = *request_->message;
        const std::lock_guard lock(mutex_);
        if (!arrival_ && polls) return message.earliest_arrival();
        if (!arrival_)
            arrival_ =
                self_->receiving.reserve(message.first_byte_arrival, message.duration) + message.duration;
        return *arrival_;
    }

    void copy_elements() {
        const std::vector<std::byte> bytes = std::move(request_->message->bytes);
        if (bytes.size() != buffer_.bytes()) {
            throw MismatchError(text("rank ", request_->message->from, " sends ", bytes.size(),
                                     " bytes to rank ", rank_, ", which expects ", buffer_.bytes(),
                                     " bytes"));
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
    Work(start_message({Verb::send, buffer, to, tag})).wait();
}

inline void SimulatedTransport::recv(const Buffer& buffer, int from, int tag) {
    Work(start_message({Verb::recv, buffer, from, tag})).wait();
}

inline int SimulatedTransport::recv_any(const Buffer& buffer, int tag) {
    return Work(start_message({Verb::recv, buffer, any_rank, tag})).source_rank();
}

inline void SimulatedTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    Work sent(start_message({Verb::send, out, to, tag}));
    recv(in, from, tag);
    sent.wait();
}

inline std::shared_ptr<WorkState> SimulatedTransport::start_message(const Message& message) {
    if (message.verb == Verb::recv)
        return std::make_shared<detail::SimulatedReceive>(hub_, self_, rank_, message);
    hub_->check_peer(message.peer);
    const SimulatedLink& link = hub_->network.link(self_->number, hub_->member(message.peer));
    const SimulatedSeconds duration{static_cast<double>(message.buffer.bytes()) / link.bytes_per_second};
    const SimulatedSeconds begin = self_->sending.reserve(self_->clock.now(), duration);
    const auto* data = static_cast<const std::byte*>(message.buffer.data);
    hub_->inbox(message.peer)
        .deliver(message.tag, {rank_, begin + link.latency, duration, {data, data + message.buffer.bytes()}});
    return std::make_shared<detail::SimulatedSend>(hub_, self_, begin + duration);
}

inline TransportCapabilities SimulatedTransport::capabilities() const {
    return {.recv_any = true,
            .start_message = true,
            .duplicate = true,
            .subgroup = true,
            .is_interruptible = true,
            .progresses_by_caller = hub_->network.time == SimulatedTime::virtual_clock};
}

inline std::unique_ptr<Transport> SimulatedTransport::duplicate() {
    return std::make_unique<SimulatedTransport>(
        hub_->part(detail::text("duplicate ", duplicates_++), hub_->members), self_, control_);
}

inline std::unique_ptr<Transport> SimulatedTransport::subgroup(std::span<const int> ranks,
                                                               std::string_view name) {
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(hub_->member(rank));
    return std::make_unique<SimulatedTransport>(hub_->part(name, members), self_, control_);
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
