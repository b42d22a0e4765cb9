/// Shared-memory communication between the ranks of one host, on top of any transport between hosts. Groups
/// over MPI, TCP and Gloo use it by default; DPTK_SHM=0 disables it.
#pragma once

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/shm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over any transport, with shared memory within each host:
/// ShmCommunicator(ShmTransport(MpiTransport(comm))).
using ShmCommunicator = BasicCommunicator<ShmTransport>;

}  // namespace DPTK_NAMESPACE
