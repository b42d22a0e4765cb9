/// Control plane of a group over MPI: rank 0 serves a store and broadcasts its address by MPI.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/mpi/environment.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Options of a group over MPI. Must be equal on all ranks, except for the network interface.
struct MpiOptions {
    /// Timeout of every call; when it expires, the job is aborted.
    std::chrono::milliseconds timeout = default_timeout;
    /// A rank that sends no heartbeat for this long counts as lost.
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout;
    /// The address of rank 0's host at which the control plane's store listens. If empty, the store listens
    /// at all addresses, or at a loopback address if all ranks are on one host.
    std::string bind_address = {};
    /// The network interface, or the address of this host, that subgroups over Gloo use. If empty,
    /// DPTK_SOCKET_IFNAME.
    std::string network_interface = {};
};

namespace detail {

/// Builds the control plane of a communicator.
class MpiControl {
  public:
    MpiControl(MPI_Comm comm, MpiOptions options);

    /// Returns the control plane. Collective.
    [[nodiscard]] std::shared_ptr<ControlPlane> make();

  private:
    /// Timeout for the connection to rank 0's store. Without this connection, lost ranks are only detected by
    /// timeouts.
    static constexpr std::chrono::milliseconds connect_timeout{10000};

    struct PeerInfo {
        std::array<char, 48> version{};
        std::array<char, 208> label{};
    };

    template <std::size_t n>
    static void copy_text(std::array<char, n>& to, std::string_view from) {
        std::memcpy(to.data(), from.data(), std::min(from.size(), n - 1));
    }

    /// Returns the labels of all ranks. Collective. Throws MismatchError on all ranks if the ranks use
    /// different versions of dptk.
    [[nodiscard]] std::vector<std::string> exchange_peer_info() const;

    /// Returns whether all ranks are on one host. Collective.
    [[nodiscard]] bool is_on_one_host() const;

    /// Returns the store that all ranks share, or null on all ranks if any rank cannot connect to the store.
    /// Collective.
    [[nodiscard]] std::shared_ptr<Store> connect();

    void broadcast(std::string& line) const;

    MPI_Comm comm_;
    MpiOptions options_;
    int rank_ = 0;
    int size_ = 1;
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/control.ipp"
#endif
