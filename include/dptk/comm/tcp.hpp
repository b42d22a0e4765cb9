/// Registers the TCP transport with init_process_group, which then connects ranks without a library. Either
/// dptk-run, torchrun or srun starts the ranks, or the program specifies the rendezvous.
#pragma once

#include <memory>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/tcp/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over TCP, which connects through any Store:
/// TcpCommunicator(TcpTransport({.rank = r, .size = n, .store = store}), {.store = store}).
/// init_process_group creates groups over TCP by itself.
using TcpCommunicator = BasicCommunicator<TcpTransport>;

namespace detail {

/// Returns how well TCP fits the job: best if the program specifies a rendezvous, or if torchrun or dptk-run
/// has started the ranks. TCP does not fit a rendezvous by MPI.
[[nodiscard]] Fit tcp_fit(const JobRequest& request);

[[nodiscard]] ProcessGroup create_tcp_group(const JobRequest& request);

[[nodiscard]] EngineOwner create_tcp_subgroup(const SubgroupRequest& request);

inline const bool tcp_is_registered =
    register_transport({TcpFactory::name, tcp_fit, create_tcp_group, create_tcp_subgroup});

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp.ipp"
#endif
