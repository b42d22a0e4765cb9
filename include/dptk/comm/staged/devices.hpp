/// Collectives over several devices in each process, through the host: the devices' buffers are copied there,
/// combined there, and copied back. Blocks.
#pragma once

#include <memory>
#include <vector>

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] std::unique_ptr<DeviceGroup> connect_staged_devices(Channel& host, const std::vector<int>&);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/staged/devices.ipp"
#endif
