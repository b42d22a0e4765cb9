/// Multi-device collectives staged through host memory: the devices' buffers are copied to pinned memory,
/// combined on the host, and copied back. Blocks.
#pragma once

#include <memory>
#include <vector>

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Creates a device group over a duplicate of `host`. Collective. Throws ArgumentError if the transport of
/// `host` has no duplicate().
[[nodiscard]] std::unique_ptr<DeviceGroup> connect_staged_devices(Engine& host, const std::vector<int>&);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/staged/devices.ipp"
#endif
