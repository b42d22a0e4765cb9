/// Memory for the small objects that each call makes and drops again, such as the state of a started
/// operation: a loop that makes the same calls again allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Blocks that were released and wait to be used again. Any thread may allocate and release. Blocks of more
/// than 4 KiB are not kept.
class BlockPool {
  public:
    /// Returns a block, aligned as by operator new.
    [[nodiscard]] void* allocate(std::size_t bytes);

    /// Releases a block of that size.
    void release(void* block, std::size_t bytes) noexcept;

  private:
    struct Unused {
        Unused* next;
    };

    static constexpr std::size_t unit = 64;
    static constexpr std::size_t sizes = 64;

    [[nodiscard]] static constexpr std::size_t units(std::size_t bytes) noexcept {
        return std::max<std::size_t>((bytes + unit - 1) / unit, 1);
    }

    std::mutex mutex_;
    std::array<Unused*, sizes + 1> unused_{};  // by size in units
};

/// Returns the pool of this process.
[[nodiscard]] BlockPool& block_pool();

/// A standard allocator whose blocks come from block_pool().
template <class T>
struct PoolAllocator {
    using value_type = T;

    PoolAllocator() = default;
    template <class U>
    PoolAllocator(const PoolAllocator<U>&) noexcept {}

    [[nodiscard]] T* allocate(std::size_t count) {
        return static_cast<T*>(block_pool().allocate(count * sizeof(T)));
    }
    void deallocate(T* block, std::size_t count) noexcept { block_pool().release(block, count * sizeof(T)); }

    template <class U>
    [[nodiscard]] bool operator==(const PoolAllocator<U>&) const noexcept {
        return true;
    }
};

/// std::make_shared in memory of block_pool().
template <class T, class... Arguments>
[[nodiscard]] std::shared_ptr<T> make_pooled(Arguments&&... arguments) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/block_pool.ipp"
#endif
