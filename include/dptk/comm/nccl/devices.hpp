/// Multi-device collectives over NCCL: several GPUs in each process, each an NCCL rank. Reductions that
/// NCCL does not support are staged through the host.
#pragma once

#include <memory>
#include <vector>

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Connects `devices` of all processes. Collective over `host`, which must outlive the result. If the devices
/// cannot be connected, throws the same error on all ranks.
[[nodiscard]] std::unique_ptr<DeviceGroup> connect_nccl_devices(Engine& host,
                                                                const std::vector<int>& devices);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/devices.ipp"
#endif
