/// The transport of a rank in a simulated network: messages that take time.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/simulated/messages.hpp"
#include "dptk/comm/simulated/network.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Brings messages alone. Made by launch_simulated.
class SimulatedTransport {
  public:
    static constexpr bool interruptible = true;

    /// One rank's end of the network.
    SimulatedTransport(std::shared_ptr<detail::SimulatedHub> hub, std::shared_ptr<detail::SimulatedRank> self,
                       std::shared_ptr<ControlPlane> control);

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "simulated"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return control_; }

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
    std::shared_ptr<ControlPlane> control_;
    int rank_;
    int duplicates_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/simulated/transport.ipp"
#endif
