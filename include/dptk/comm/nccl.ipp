#pragma once

#include "dptk/comm/nccl.hpp"

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE EngineOwner connect_nccl(Engine& group, NcclOptions options) {
    std::vector<int> ranks(static_cast<std::size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    ChannelIdentity identity = group.next_identity(ranks, std::nullopt);
    options.rank = group.rank();
    options.size = group.size();
    options.control = group.control();
    options.timeout = identity.timeout;
    const auto exchange = [&](const NcclPeerInfo& own) {
        std::vector<NcclPeerInfo> peers(ranks.size());
        group.run({.verb = Verb::all_gather,
                   .input = buffer_of(std::span<const NcclPeerInfo>(&own, 1)),
                   .output = buffer_of(peers)});
        return peers;
    };
    EngineOwner engine;
    group.control()->fail_job_on_error([&] {
        engine = Engine::open(std::make_unique<NcclTransport>(std::move(options), exchange), group.control(),
                              std::move(identity), group.progress());
    });
    return engine;
}

DPTK_INLINE EngineOwner connect_nccl_on(Engine& host, std::optional<int> device) {
    return connect_nccl(host, {.device = device});
}

}  // namespace DPTK_NAMESPACE::detail
