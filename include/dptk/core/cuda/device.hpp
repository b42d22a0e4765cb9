/// Which CUDA devices there are, and which one this thread uses. Devices are numbered as this process sees
/// them: CUDA_VISIBLE_DEVICES hides and orders them.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::cuda {

/// 0 where there is no device, or no driver.
[[nodiscard]] int device_count();

/// The device on which this thread allocates, and to which its default stream belongs.
[[nodiscard]] int current_device();

/// Of this thread, from now on. Throws ArgumentError for a device that is not there.
void set_device(int device);

/// The device of the rank that is number `local_rank` on its host: one each, as long as there are enough.
/// Throws ArgumentError where there is none. Call set_device(local_device(group.local_rank())) before
/// anything else.
[[nodiscard]] int local_device(int local_rank);

/// Another device for this thread, for as long as this lives. A thread of dptk's own stays there: going back
/// would make a context, and take memory, on a device that it has never used.
class DeviceScope {
  public:
    /// Makes `device` the current one. Throws BackendError where there is no such device.
    explicit DeviceScope(int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    int before_;
    int device_;
};

/// "0000:3b:00.0": one GPU of a host, whatever number it has in a process.
[[nodiscard]] std::string bus_id(int device);

/// Where memory lies that somebody has allocated by whatever function of CUDA's, managed memory on its
/// device; the cpu for all other memory.
[[nodiscard]] Device device_of(const void* memory);

namespace detail {

/// For each device, how many things go on there that nobody can stop: what waits for the device, as cudaFree
/// does, must not be called then.
inline std::array<std::atomic<int>, 64> stuck_devices = {};

void mark_stuck(int device) noexcept;

void unmark_stuck(int device) noexcept;

[[nodiscard]] bool is_stuck(int device) noexcept;

[[nodiscard]] bool is_any_stuck() noexcept;

/// Blocks until the device has done all that it has been given; not where it is stuck. For destructors.
void await_device(int device) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/device.ipp"
#endif
