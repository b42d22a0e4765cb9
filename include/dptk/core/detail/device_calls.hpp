/// What code without CUDA's headers does with device memory. core/cuda/detail/device_calls.hpp fills it in,
/// where a program includes a transport of device memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// In the default stream of a device, behind what it has been given.
struct DeviceCalls {
    /// This thread's.
    int (*current_device)();
    void (*set_device)(int device);
    /// Of memory of that device.
    void (*copy)(void* to, const void* from, std::size_t bytes, int device);
    void (*set_zero)(void* data, std::size_t bytes, int device);
    /// Blocks until all that is done.
    void (*synchronize)(int device);
};

inline constexpr const char* no_device_memory =
    "this program serves no device memory: include <dptk/comm/nccl.hpp>, or <dptk/comm/staged.hpp> to send "
    "it "
    "through the host";

DPTK_EXPORT inline std::atomic<const DeviceCalls*>& registered_device_calls() {
    static std::atomic<const DeviceCalls*> calls = nullptr;
    return calls;
}

/// Makes a lane beside a stream of the program's.
using LaneMaker = std::unique_ptr<DeviceLane> (*)(int device, StreamRef program);

/// Null where the program has been built without dptk's kernels.
DPTK_EXPORT inline std::atomic<LaneMaker>& registered_lane_maker() {
    static std::atomic<LaneMaker> maker = nullptr;
    return maker;
}

/// Throws ArgumentError where the program has none.
[[nodiscard]] const DeviceCalls& device_calls();

/// While it lives, a device is this thread's.
class CurrentDevice {
  public:
    explicit CurrentDevice(int device);
    ~CurrentDevice();
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

  private:
    int before_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/device_calls.ipp"
#endif
