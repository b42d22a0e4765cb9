/// DeviceCalls (device selection, copies, zeroing) implemented with the CUDA runtime. Including this header
/// registers them.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/detail/nvtx.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/detail/device_calls.hpp"
#ifdef DPTK_WITH_KERNELS
#include "dptk/core/cuda/detail/device_lane.hpp"
#endif

namespace DPTK_NAMESPACE::cuda::detail {

inline constexpr dptk::detail::DeviceCalls device_calls = {
    .current_device = [] { return current_device(); },
    .set_device = [](int device) { set_device(device); },
    .copy =
        [](void* to, const void* from, std::size_t bytes, int device) {
            const DeviceScope on(device);
            copy_bytes(to, from, bytes, {});
        },
    .set_zero =
        [](void* data, std::size_t bytes, int device) {
            const DeviceScope on(device);
            if (bytes > 0) check(cudaMemsetAsync(data, 0, bytes, nullptr), "cudaMemsetAsync");
        },
    .synchronize =
        [](int device) {
            const DeviceScope on(device);
            cuda::synchronize(StreamRef());
        },
};

inline const bool device_calls_are_registered = [] {
    dptk::detail::registered_device_calls() = &device_calls;
    return true;
}();

}  // namespace DPTK_NAMESPACE::cuda::detail
