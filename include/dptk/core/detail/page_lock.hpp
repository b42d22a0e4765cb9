/// Page-locking of host memory, so that copies to and from a GPU do not block: for code that does not include
/// CUDA's headers. core/cuda/detail/page_lock.hpp implements it.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct PageLockCalls {
    void (*lock)(void* data, std::size_t bytes, int device);
    void (*unlock)(void* data) noexcept;
};

/// How memory is page-locked, for copies to `device`.
struct PageLock {
    const PageLockCalls* calls = nullptr;  // null: not at all
    int device = 0;
};

}  // namespace DPTK_NAMESPACE::detail
