/// Registers the staged transport for buffers in CUDA device memory. This transport copies them through
/// page-locked staging buffers in host memory. Every ProcessGroup then accepts buffers in device memory. If
/// <dptk/comm/nccl.hpp> is included as well, NCCL is used instead, unless DPTK_DEVICE_BACKEND=staged is set.
#pragma once

#include <memory>
#include <optional>

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/staged/devices.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/detail/device_calls.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] EngineOwner connect_staged(Engine& host, std::optional<int> device);

inline const bool staged_is_registered =
    register_device_transport({"staged", 0, connect_staged, connect_staged_devices});

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/staged.ipp"
#endif
