/// Groups over NCCL. Including this header makes every ProcessGroup serve the memory of CUDA devices: its
/// calls on host memory go over the group's own transport, and those on device memory over NCCL, which is
/// connected, between the devices that their buffers are on, when the first of them comes.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/nccl/devices.hpp"
#include "dptk/comm/nccl/transport.hpp"
#include "dptk/comm/staged.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Made through a Store (NcclTransport), around an ncclComm_t (NcclTransport), or over any group's ranks
/// (nccl_communicator).
using NcclCommunicator = BasicCommunicator<NcclTransport>;

namespace detail {

/// A channel over NCCL between the ranks of another one, whose job they go on to share. Collective.
[[nodiscard]] std::unique_ptr<TransportChannel<NcclTransport>> connect_nccl(Channel& group,
                                                                            NcclOptions options);

[[nodiscard]] std::unique_ptr<Channel> connect_nccl_on(Channel& host, std::optional<int> device);

inline const bool nccl_is_registered =
    register_device_transport({"nccl", 1, connect_nccl_on, connect_nccl_devices});

}  // namespace detail

/// A communicator over NCCL between the ranks of a group, on the current CUDA device unless the options name
/// one; their rank, size, store, control and timeout are the group's. They fail together. Collective; blocks.
/// Throws as NcclTransport does; what is agreed leaves the group usable.
template <class Group>
[[nodiscard]] NcclCommunicator nccl_communicator(Group& group, NcclOptions options = {}) {
    return NcclCommunicator(detail::connect_nccl(group.channel(), std::move(options)));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl.ipp"
#endif
