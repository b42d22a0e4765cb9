/// CUDA devices: their number, the current device of a thread, and the device of a local rank. Devices are
/// numbered as this process sees them: CUDA_VISIBLE_DEVICES hides and orders them.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Returns the number of CUDA devices of this process; 0 if there is no device or no driver.
[[nodiscard]] int device_count();

/// Returns the device on which this thread allocates, and to which its default stream belongs.
[[nodiscard]] int current_device();

/// Sets the current device of this thread. Throws ArgumentError if no such device exists.
void set_device(int device);

/// Returns the device for the rank whose number on its host is `local_rank`. Ranks share devices if there
/// are fewer devices than ranks. Throws ArgumentError if this process has no CUDA device. Call
/// set_device(local_device(group.local_rank())) before any other CUDA call.
[[nodiscard]] int local_device(int local_rank);

/// Makes another device current for this thread for the lifetime of this object. On dptk's background threads
/// the destructor does not restore the previous device, since doing so would create a context, which takes
/// memory, on a device that the thread never used.
class DeviceScope {
  public:
    /// Makes `device` the current one. Throws BackendError if no such device exists.
    explicit DeviceScope(int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    int before_;
    int device_;
};

/// Returns the PCI bus id, such as "0000:3b:00.0". The id identifies a GPU on its host, whatever index the
/// GPU has in a process.
[[nodiscard]] std::string bus_id(int device);

/// Returns the CUDA device of device memory or managed memory, whichever CUDA function allocated it; the cpu
/// for all other memory, including page-locked memory.
[[nodiscard]] Device device_of(const void* memory);

namespace detail {

/// Per device, the number of operations that have hung and cannot be canceled. While it is not 0, functions
/// that wait for the device, such as cudaFree, must not be called.
inline std::array<std::atomic<int>, 64> stuck_devices = {};

void mark_stuck(int device) noexcept;

void unmark_stuck(int device) noexcept;

[[nodiscard]] bool is_stuck(int device) noexcept;

[[nodiscard]] bool is_any_stuck() noexcept;

/// Blocks until the device has finished all of its work; returns at once if the device is stuck. For
/// destructors.
void wait_for_device(int device) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/device.ipp"
#endif
