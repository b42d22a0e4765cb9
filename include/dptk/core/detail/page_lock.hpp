/// Page-locked host memory, from and to which copies of a GPU do not block: for code that does not include
/// CUDA's headers. core/cuda/detail/page_lock.hpp implements it.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct PageLockCalls {
    /// Returns memory that is aligned to at least 64 bytes.
    void* (*allocate)(std::size_t bytes, int device);
    void (*free)(void* data, int device) noexcept;
};

/// Where page-locked memory for copies to `device` comes from.
struct PageLock {
    const PageLockCalls* calls = nullptr;  // null: the memory is not page-locked
    int device = 0;
};

}  // namespace DPTK_NAMESPACE::detail
