/// Registers NCCL as the transport for CUDA device memory: every ProcessGroup then accepts buffers in device
/// memory. Calls on host memory use the group's own transport, calls on device memory use NCCL. The first
/// call on device memory connects NCCL between the devices of the ranks' buffers.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/init.hpp"
#include "dptk/comm/nccl/devices.hpp"
#include "dptk/comm/nccl/transport.hpp"
#include "dptk/comm/staged.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over NCCL. An NcclTransport connects ranks through a Store or wraps an existing ncclComm_t.
/// nccl_communicator() creates a communicator over NCCL for the ranks of a group.
using NcclCommunicator = BasicCommunicator<NcclTransport>;

namespace detail {

/// Creates an engine over NCCL between the ranks of `group`. Both engines belong to the same job.
/// Collective.
[[nodiscard]] EngineOwner connect_nccl(Engine& group, NcclOptions options);

[[nodiscard]] EngineOwner connect_nccl_on(Engine& host, std::optional<int> device);

inline const bool nccl_is_registered =
    register_device_transport({"nccl", 1, connect_nccl_on, connect_nccl_devices});

}  // namespace detail

/// Creates a communicator over NCCL between the ranks of a group. It uses the current CUDA device unless
/// `options` names another one. The rank, size, store, control and timeout in `options` are ignored; the
/// group's are used instead. If the communicator fails, the group fails as well, and vice versa. Collective;
/// blocks. Throws as NcclTransport does; after an agreed error the group stays usable.
template <class Group>
[[nodiscard]] NcclCommunicator nccl_communicator(Group& group, NcclOptions options = {}) {
    return NcclCommunicator(detail::connect_nccl(group.engine(), std::move(options)));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl.ipp"
#endif
