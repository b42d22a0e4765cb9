/// Collectives over several devices in each process, over NCCL: each device is a rank of its own there. What
/// NCCL has no operation for goes through the host.
#pragma once

#include <memory>
#include <vector>

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] std::unique_ptr<DeviceGroup> connect_nccl_devices(Channel& host,
                                                                const std::vector<int>& devices);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/devices.ipp"
#endif
