/// Rendezvous: each process of a job publishes its peer info in a store; rank 0 checks that the peer infos of
/// all processes are consistent, and publishes the result. If the check fails, all processes that have
/// connected throw the same error.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct RendezvousOptions {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds timeout = default_timeout;
    /// Where the store is, for messages: "tcp://10.0.0.1:29500".
    std::string where = "the store";
};

/// The description, the host and the address of each process, by rank.
struct Peers {
    std::vector<std::string> labels;
    std::vector<std::string> hosts;
    /// The address at which other hosts reach the process: that of its connection to the store or, on the
    /// host of the store, that of the store as another host sees it. Empty if unknown, as on one host.
    std::vector<std::string> addresses;
};

/// What a process publishes about itself.
struct PeerInfo {
    int rank = 0;
    int world_size = 1;
    std::string version;
    std::string host;
    /// The ends of its connection to the store; empty if they are loopback addresses.
    StoreConnection connection;
    std::string label;

    friend bool operator==(const PeerInfo&, const PeerInfo&) = default;

    [[nodiscard]] std::string to_line() const;

    [[nodiscard]] static std::optional<PeerInfo> parse(std::string_view line);

    [[nodiscard]] std::string name() const;
};

/// Performs the rendezvous: blocks until all `world_size` processes have connected, for at most the timeout.
/// If a rank has not connected by then, all processes that have connected throw a TimeoutError that names the
/// missing ranks. If two processes have the same rank, or disagree about the world size or the version of
/// dptk, they all throw a MismatchError. Collective.
[[nodiscard]] Peers rendezvous(Store& store, RendezvousOptions options);

/// The key of the rendezvous' result.
inline constexpr std::string_view rendezvous_result_key = "verdict";

/// Ends the rendezvous in this store, unless it is complete: its processes throw a PeerLostError with the
/// cause.
void end_rendezvous(Store& store, const std::string& cause);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rendezvous.ipp"
#endif
