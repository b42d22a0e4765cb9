/// The control plane of a group over MPI: rank 0 serves a store, and tells the others by MPI where it is.
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

/// Of a group over MPI. The same on all ranks.
struct MpiOptions {
    /// Of every call; where it passes, the job ends.
    std::chrono::milliseconds timeout = default_timeout;
    /// How long a rank may be silent before it counts as lost.
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout;
    /// The address of rank 0's host at which the ranks' control plane is served; empty for all of them.
    std::string bind_address = {};
};

namespace detail {

class MpiControl {
  public:
    MpiControl(MPI_Comm comm, MpiOptions options);

    /// Collective.
    [[nodiscard]] std::shared_ptr<ControlPlane> make();

  private:
    /// How long the way to rank 0's store may take to find; without it the job does with deadlines.
    static constexpr std::chrono::milliseconds patience{10000};

    struct Identity {
        std::array<char, 48> version{};
        std::array<char, 208> label{};
    };

    template <std::size_t n>
    static void copy_text(std::array<char, n>& to, std::string_view from) {
        std::memcpy(to.data(), from.data(), std::min(from.size(), n - 1));
    }

    /// Throws MismatchError, on all ranks, where one has another version of dptk.
    [[nodiscard]] std::vector<std::string> meet_peers() const;

    /// The store of all ranks; null, on all of them, where one cannot reach it.
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
