#pragma once

#include "dptk/core/cuda/device.hpp"

#include <cstddef>

#include "dptk/core/cuda/error.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/thread_kind.hpp"

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE int device_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    static_cast<void>(cudaGetLastError());
    return 0;
}

DPTK_INLINE int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

DPTK_INLINE void set_device(int device) {
    if (const int count = device_count(); device < 0 || device >= count) {
        throw ArgumentError(
            count == 0 ? dptk::detail::text("CUDA device ", device, ": this process sees no CUDA device")
                       : dptk::detail::text("CUDA device ", device, " is outside [0, ", count - 1, "]"));
    }
    check(cudaSetDevice(device), "cudaSetDevice");
}

DPTK_INLINE int local_device(int local_rank) {
    const int count = device_count();
    if (count == 0) throw ArgumentError("this process sees no CUDA device");
    return local_rank % count;
}

DPTK_INLINE DeviceScope::DeviceScope(int device)
    : before_(dptk::detail::is_background_thread ? device : current_device()), device_(device) {
    if (device_ != before_ || dptk::detail::is_background_thread)
        check(cudaSetDevice(device_), "cudaSetDevice");
}

DPTK_INLINE DeviceScope::~DeviceScope() {
    if (device_ != before_) static_cast<void>(cudaSetDevice(before_));
}

DPTK_INLINE std::string bus_id(int device) {
    std::array<char, 32> id{};
    check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device), "cudaDeviceGetPCIBusId");
    return id.data();
}

DPTK_INLINE Device device_of(const void* memory) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged)
        return {DeviceType::cuda, attributes.device};
    return {};
}

}  // namespace DPTK_NAMESPACE::cuda

namespace DPTK_NAMESPACE::cuda::detail {

[[nodiscard]] DPTK_INLINE std::atomic<int>& stuck_device(int device) noexcept {
    return stuck_devices[static_cast<std::size_t>(device) % stuck_devices.size()];
}

DPTK_INLINE void mark_stuck(int device) noexcept {
    ++stuck_device(device);
}

DPTK_INLINE void unmark_stuck(int device) noexcept {
    --stuck_device(device);
}

DPTK_INLINE bool is_stuck(int device) noexcept {
    return stuck_device(device) > 0;
}

DPTK_INLINE bool is_any_stuck() noexcept {
    return dptk::detail::any_of(stuck_devices, [](const std::atomic<int>& count) { return count > 0; });
}

DPTK_INLINE void wait_for_device(int device) noexcept {
    if (is_stuck(device)) return;
    try {
        const DeviceScope on(device);
        static_cast<void>(cudaDeviceSynchronize());
    } catch (const BackendError&) {
        // If the device cannot be made current, there is nothing to wait for.
    }
}

}  // namespace DPTK_NAMESPACE::cuda::detail
