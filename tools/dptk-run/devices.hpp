// Counts the CPU cores and GPUs of this host.
#pragma once

namespace run {

/// The number of cores in this process's CPU affinity mask.
[[nodiscard]] int count_cores();

/// The number of NVIDIA GPUs in `device_dir` (/dev) that CUDA_VISIBLE_DEVICES makes visible.
/// `visible_devices` is the value of that variable, null if it is not set.
[[nodiscard]] int count_gpus(const char* device_dir, const char* visible_devices);

}  // namespace run
