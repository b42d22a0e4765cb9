/// init_method: the URL that selects how the processes of a job find each other, in the notation of
/// torch.distributed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// How the processes of a job find each other.
enum class RendezvousKind : std::uint8_t {
    none,   ///< not specified: depends on the launcher
    env,    ///< rank 0 serves a store at MASTER_ADDR and MASTER_PORT
    tcp,    ///< rank 0 serves a store at the given host and port
    file,   ///< through a file on a shared file system
    mpi,    ///< through MPI
    slurm,  ///< rank 0 serves a store at an address derived from SLURM's variables
};

/// A parsed init_method. The host and port are set for tcp only, the path for file only.
struct InitMethod {
    RendezvousKind rendezvous = RendezvousKind::none;  ///< How the processes find each other.
    std::string host = {};                             ///< The host of rank 0's store.
    std::uint16_t port = 0;                            ///< The port of rank 0's store.
    std::string path = {};                             ///< The path of the shared file.
};

namespace detail {

[[nodiscard]] std::uint16_t parse_port(std::string_view whole, std::string_view digits);

/// Parses "host:port" (an IPv6 address in brackets). Throws ArgumentError that says what was expected, after
/// `whole`.
[[nodiscard]] SocketAddress parse_address(std::string_view whole, std::string_view address,
                                          std::string_view expected);

}  // namespace detail

/// Parses an init_method: "env://", "tcp://host:port" (an IPv6 address in brackets), "file:///path",
/// "mpi://", "slurm://", or an empty string. Throws ArgumentError for other values.
[[nodiscard]] InitMethod parse_init_method(std::string_view method);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/init_method.ipp"
#endif
