#pragma once

#include "dptk/comm/staged.hpp"

#include <utility>

#include "dptk/comm/detail/transport_channel.hpp"
#include "dptk/comm/staged/transport.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::unique_ptr<Channel> connect_staged(Channel& host, std::optional<int> device) {
    const ChannelJob& job = host.job();
    std::unique_ptr<Channel> copy = host.duplicate();
    if (!copy)
        throw ArgumentError("the transport " + host.backend() +
                            " has no duplicate(), which device memory requires");
    ChannelIdentity identity = copy->identity();
    identity.name += "/device";
    std::unique_ptr<Channel> channel;
    break_job_unless_agreed(job, [&] {
        StagedTransport transport(std::move(copy), device ? *device : cuda::current_device());
        channel = std::make_unique<TransportChannel<StagedTransport>>(std::move(transport), job, identity);
    });
    return channel;
}

}  // namespace DPTK_NAMESPACE::detail
