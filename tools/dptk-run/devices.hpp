// What this host has to run ranks on.
#pragma once

namespace run {

/// Cores that this process may use.
[[nodiscard]] int count_cores();

/// NVIDIA GPUs: those in `device_dir` (/dev), as far as CUDA_VISIBLE_DEVICES (null where it is not set) shows
/// them.
[[nodiscard]] int count_gpus(const char* device_dir, const char* visible_devices);

}  // namespace run
