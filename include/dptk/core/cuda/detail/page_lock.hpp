/// Page-locking of host memory with the CUDA runtime.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/detail/page_lock.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

inline constexpr dptk::detail::PageLockCalls page_lock_calls = {
    .lock =
        [](void* data, std::size_t bytes, int device) {
            const DeviceScope on(device);
            check(cudaHostRegister(data, bytes, cudaHostRegisterPortable), "cudaHostRegister");
        },
    .unlock =
        [](void* data) noexcept {
            if (!is_any_stuck()) static_cast<void>(cudaHostUnregister(data));
        },
};

/// Locks memory for copies to the current device.
[[nodiscard]] inline dptk::detail::PageLock page_lock() {
    return {&page_lock_calls, current_device()};
}

}  // namespace DPTK_NAMESPACE::cuda::detail
