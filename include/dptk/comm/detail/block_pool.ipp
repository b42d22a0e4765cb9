#pragma once

#include "dptk/comm/detail/block_pool.hpp"

#include <new>

#include "dptk/control/process/fork_guard.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void* BlockPool::allocate(std::size_t bytes) {
    const std::size_t size = units(bytes);
    if (size > sizes) return ::operator new(bytes);
    {
        const std::lock_guard lock(mutex_);
        if (Unused* const block = unused_[size]) {
            unused_[size] = block->next;
            return block;
        }
    }
    return ::operator new(size* unit);
}

DPTK_INLINE void BlockPool::release(void* block, std::size_t bytes) noexcept {
    const std::size_t size = units(bytes);
    if (size > sizes) return ::operator delete(block);
    const std::lock_guard lock(mutex_);
    unused_[size] = ::new (block) Unused{unused_[size]};
}

DPTK_INLINE BlockPool& block_pool() {
    static OfThisProcess<BlockPool> pool;
    return pool.get();
}

}  // namespace DPTK_NAMESPACE::detail
