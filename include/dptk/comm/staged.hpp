/// Device memory over transports of host memory. Including this header makes every ProcessGroup serve the
/// memory of CUDA devices, by way of page-locked host memory; or by NCCL, where <dptk/comm/nccl.hpp> is
/// included and DPTK_DEVICE_BACKEND does not say "staged".
#pragma once

#include "dptk/comm/staged_transport.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "dptk/comm/device_registry.hpp"
#include "dptk/comm/staged_devices.hpp"
#include "dptk/comm/transport_channel.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/core/cuda/device_calls.hpp"

namespace dptk::detail {

[[nodiscard]] inline std::unique_ptr<Channel> connect_staged(Channel& host, std::optional<int> device) {
    const ChannelJob& job = host.job();
    std::unique_ptr<Channel> copy = host.duplicate();
    if (!copy)
        throw ArgumentError("the transport " + host.backend() +
                            " has no duplicate(), and so no device memory");
    ChannelIdentity identity = copy->identity();
    identity.name += "/device";
    std::unique_ptr<Channel> channel;
    break_job_unless_agreed(job, [&] {
        StagedTransport transport(std::move(copy), device ? *device : cuda::current_device());
        channel = std::make_unique<TransportChannel<StagedTransport>>(std::move(transport), job, identity);
    });
    return channel;
}

inline const bool staged_is_registered =
    register_device_transport({"staged", 0, connect_staged, connect_staged_devices});

}  // namespace dptk::detail
