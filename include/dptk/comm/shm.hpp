/// Ranks of one host that share memory, whatever carries what goes between hosts. Groups over MPI and Gloo
/// are made so by themselves; DPTK_SHM=0 switches it off.
#pragma once

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/shm/transport.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Made from any transport: ShmCommunicator<Inner>(ShmTransport(Inner(...))).
template <Transport Inner>
using ShmCommunicator = BasicCommunicator<ShmTransport<Inner>>;

}  // namespace DPTK_NAMESPACE
