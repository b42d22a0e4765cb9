/// Function table for device memory (device selection, copies, zeroing), for code that does not include
/// CUDA's headers. core/cuda/detail/device_calls.hpp registers it if the program includes a transport for
/// device memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Operations on a device's memory. Copies and zeroing are enqueued on the device's default stream.
struct DeviceCalls {
    /// Returns the current device of this thread.
    int (*current_device)();
    void (*set_device)(int device);
    /// Copies from or to memory of `device`.
    void (*copy)(void* to, const void* from, std::size_t bytes, int device);
    void (*set_zero)(void* data, std::size_t bytes, int device);
    /// Blocks until the device's default stream has finished its work.
    void (*synchronize)(int device);
};

inline constexpr const char* no_device_memory =
    "this program has no transport for device memory: include <dptk/comm/nccl.hpp>, or "
    "<dptk/comm/staged.hpp>, which copies through host memory";

DPTK_EXPORT inline std::atomic<const DeviceCalls*>& registered_device_calls() {
    static std::atomic<const DeviceCalls*> calls = nullptr;
    return calls;
}

/// Makes a lane that works beside the user's stream `program`.
using LaneMaker = std::unique_ptr<DeviceLane> (*)(int device, StreamRef program);

/// The registered lane maker; null if the program was built without dptk's kernels.
DPTK_EXPORT inline std::atomic<LaneMaker>& registered_lane_maker() {
    static std::atomic<LaneMaker> maker = nullptr;
    return maker;
}

/// Returns the registered function table. Throws ArgumentError if the program has registered none.
[[nodiscard]] const DeviceCalls& device_calls();

/// Makes a device current for this thread for the lifetime of this object.
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
