#pragma once

#include "dptk/comm/staged.hpp"

#include <utility>

#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/staged/transport.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE EngineOwner connect_staged(Engine& host, std::optional<int> device) {
    EngineOwner copy = host.duplicate();
    if (!copy)
        throw ArgumentError("the transport " + host.backend() +
                            " has no duplicate(), which device memory requires");
    ChannelIdentity identity = copy->identity();
    identity.name += "/device";
    EngineOwner engine;
    host.control()->fail_job_on_error([&] {
        auto transport =
            std::make_unique<StagedTransport>(std::move(copy), device ? *device : cuda::current_device());
        engine = Engine::open(std::move(transport), host.control(), identity, host.progress());
    });
    return engine;
}

}  // namespace DPTK_NAMESPACE::detail
