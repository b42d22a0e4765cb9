/// Page-locked host memory of the CUDA runtime.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/detail/page_lock.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

inline constexpr dptk::detail::PageLockCalls page_lock_calls = {
    .allocate =
        [](std::size_t bytes, int device) {
            const DeviceScope on(device);
            void* memory = nullptr;
            check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
            return memory;
        },
    .free =
        [](void* data, int device) noexcept {
            if (is_any_stuck()) return;
            try {
                const DeviceScope on(device);
                static_cast<void>(cudaFreeHost(data));
            } catch (const Error&) {  // the device cannot be used any more
            }
        },
};

/// Returns where memory for copies to the current device comes from.
[[nodiscard]] inline dptk::detail::PageLock page_lock() {
    return {&page_lock_calls, current_device()};
}

}  // namespace DPTK_NAMESPACE::cuda::detail
