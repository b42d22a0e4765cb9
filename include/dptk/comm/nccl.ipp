#pragma once

#include "dptk/comm/nccl.hpp"

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::unique_ptr<TransportChannel<NcclTransport>> connect_nccl(Channel& group,
                                                                          NcclOptions options) {
    const ChannelJob& job = group.job();
    std::vector<int> ranks(static_cast<std::size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    ChannelIdentity identity = group.next_identity(ranks, std::nullopt);
    options.rank = group.rank();
    options.size = group.size();
    options.control = job.control;
    options.timeout = identity.timeout;
    const auto exchange = [&](const NcclPeerInfo& own) {
        std::vector<NcclPeerInfo> peers(ranks.size());
        group.run({.verb = Verb::all_gather,
                   .input = buffer_of(std::span<const NcclPeerInfo>(&own, 1)),
                   .output = buffer_of(peers)});
        return peers;
    };
    std::unique_ptr<TransportChannel<NcclTransport>> channel;
    break_job_unless_agreed(job, [&] {
        channel = std::make_unique<TransportChannel<NcclTransport>>(
            NcclTransport(std::move(options), exchange), job, std::move(identity));
    });
    return channel;
}

DPTK_INLINE std::unique_ptr<Channel> connect_nccl_on(Channel& host, std::optional<int> device) {
    return connect_nccl(host, {.device = device});
}

}  // namespace DPTK_NAMESPACE::detail
