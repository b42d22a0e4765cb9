/// How the processes of a job find each other: what `init_method` says, in torch.distributed's notation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

enum class Meeting : std::uint8_t {
    none,   ///< not said: the launcher decides
    env,    ///< MASTER_ADDR and MASTER_PORT
    tcp,    ///< a host and a port, where rank 0 serves
    file,   ///< a file that all processes share
    mpi,    ///< MPI knows
    slurm,  ///< SLURM's variables
};

struct InitMethod {
    Meeting meeting = Meeting::none;
    std::string host = {};
    std::uint16_t port = 0;
    std::string path = {};
};

namespace detail {

[[nodiscard]] std::uint16_t parse_port(std::string_view whole, std::string_view digits);

}  // namespace detail

/// "env://", "tcp://host:port" (IPv6 in brackets), "file:///path", "mpi://", "slurm://", or nothing. Throws
/// ArgumentError for anything else.
[[nodiscard]] InitMethod parse_init_method(std::string_view method);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/init_method.ipp"
#include "dptk/core/error.hpp"
#endif
