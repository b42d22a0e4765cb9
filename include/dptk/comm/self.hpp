/// SelfTransport is the transport of a group of one rank, like MPI_COMM_SELF. init_process_group uses it, for
/// example, if no launcher has started the program. Collectives only copy the input to the output.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "dptk/comm/communicator.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The transport of a group of one rank.
class SelfTransport {
  public:
    /// Creates the transport. The groups of launch_threads inherit `timeout`; calls of one rank need none.
    explicit SelfTransport(std::chrono::milliseconds timeout = default_timeout) : timeout_(timeout) {}

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] std::string_view backend() const noexcept { return "self"; }

    /// Throws ArgumentError, since the group has no other rank.
    void send(const Buffer&, int to, int) { refuse("send to", to); }
    void recv(const Buffer&, int from, int) { refuse("recv from", from); }

    // With one rank every result is the input, and user functions are never called.
    [[nodiscard]] static bool reduces(DType, const Reduction&) noexcept { return true; }
    void all_reduce(const Buffer&, const Reduction&) {}
    void reduce(const Buffer&, const Reduction&, int) {}
    void broadcast(const Buffer&, int) {}
    void all_gather(const Buffer& input, const Buffer& output) { algorithms::place(output, input); }
    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t>);
    void gather(const Buffer& input, const Buffer& output, int) { algorithms::place(output, input); }
    void scatter(const Buffer& input, const Buffer& output, int) { algorithms::place(output, input); }
    void reduce_scatter(const Buffer& input, const Buffer& output, const Reduction&);
    void all_to_all(const Buffer& input, const Buffer& output) { algorithms::place(output, input); }
    void barrier() {}

    [[nodiscard]] SelfTransport duplicate() { return *this; }
    [[nodiscard]] SelfTransport subgroup(std::span<const int>, std::string_view) { return *this; }

    /// Returns a control plane without a store.
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const {
        return detail::ControlPlane::make({.timeout = timeout_}, std::make_shared<detail::JobState>());
    }

  private:
    static void refuse(std::string_view what, int peer);

    std::chrono::milliseconds timeout_;
};

/// A communicator of one rank: SelfCommunicator(SelfTransport{}).
using SelfCommunicator = BasicCommunicator<SelfTransport>;

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/self.ipp"
#endif
