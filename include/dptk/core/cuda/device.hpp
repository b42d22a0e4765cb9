/// Which CUDA devices there are, and which one this thread uses. Devices are numbered as this process sees
/// them: CUDA_VISIBLE_DEVICES hides and orders them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>

#include "dptk/core/buffer.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/own_thread.hpp"

namespace dptk::cuda {

/// 0 where there is no device, or no driver.
[[nodiscard]] inline int device_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    static_cast<void>(cudaGetLastError());
    return 0;
}

/// The device on which this thread allocates, and to which its default stream belongs.
[[nodiscard]] inline int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// Of this thread, from now on. Throws ArgumentError for a device that is not there.
inline void set_device(int device) {
    if (const int count = device_count(); device < 0 || device >= count) {
        throw ArgumentError(
            count == 0 ? dptk::detail::text("CUDA device ", device, ": this process sees no CUDA device")
                       : dptk::detail::text("CUDA device ", device, " is outside [0, ", count - 1, "]"));
    }
    check(cudaSetDevice(device), "cudaSetDevice");
}

/// The device of the rank that is number `local_rank` on its host: one each, as long as there are enough.
/// Throws ArgumentError where there is none. Call set_device(local_device(group.local_rank())) before
/// anything else.
[[nodiscard]] inline int local_device(int local_rank) {
    const int count = device_count();
    if (count == 0) throw ArgumentError("this process sees no CUDA device");
    return local_rank % count;
}

/// Another device for this thread, for as long as this lives. A thread of dptk's own stays there: going back
/// would make a context, and take memory, on a device that it has never used.
class DeviceScope {
  public:
    /// Makes `device` the current one. Throws BackendError where there is no such device.
    explicit DeviceScope(int device)
        : before_(dptk::detail::is_own_thread ? device : current_device()), device_(device) {
        if (device_ != before_ || dptk::detail::is_own_thread) check(cudaSetDevice(device_), "cudaSetDevice");
    }
    ~DeviceScope() {
        if (device_ != before_) static_cast<void>(cudaSetDevice(before_));
    }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    int before_;
    int device_;
};

/// "0000:3b:00.0": one GPU of a host, whatever number it has in a process.
[[nodiscard]] inline std::string bus_id(int device) {
    std::array<char, 32> id{};
    check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device), "cudaDeviceGetPCIBusId");
    return id.data();
}

/// Where memory lies that somebody has allocated by whatever function of CUDA's, managed memory on its
/// device; the cpu for all other memory.
[[nodiscard]] inline Device device_of(const void* memory) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged)
        return {DeviceType::cuda, attributes.device};
    return {};
}

namespace detail {

/// For each device, how many things go on there that nobody can stop: what waits for the device, as cudaFree
/// does, must not be called then.
inline std::array<std::atomic<int>, 64> stuck_devices = {};

[[nodiscard]] inline std::atomic<int>& stuck_device(int device) noexcept {
    return stuck_devices[static_cast<std::size_t>(device) % stuck_devices.size()];
}

inline void mark_stuck(int device) noexcept {
    ++stuck_device(device);
}

inline void unmark_stuck(int device) noexcept {
    --stuck_device(device);
}

[[nodiscard]] inline bool is_stuck(int device) noexcept {
    return stuck_device(device) > 0;
}

[[nodiscard]] inline bool is_any_stuck() noexcept {
    return std::ranges::any_of(stuck_devices, [](const std::atomic<int>& count) { return count > 0; });
}

/// Blocks until the device has done all that it has been given; not where it is stuck. For destructors.
inline void await_device(int device) noexcept {
    if (is_stuck(device)) return;
    try {
        const DeviceScope on(device);
        static_cast<void>(cudaDeviceSynchronize());
    } catch (const BackendError&) {
        // There is nothing to wait for on a device that cannot be chosen.
    }
}

}  // namespace detail

}  // namespace dptk::cuda
