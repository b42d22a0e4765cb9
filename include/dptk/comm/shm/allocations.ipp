#pragma once

#include "dptk/comm/shm/allocations.hpp"

#include <utility>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<void> ShmAllocations::add(const std::shared_ptr<ShmAllocations>& table,
                                                      std::uint64_t allocation,
                                                      std::shared_ptr<ShmPages> pages, std::size_t stride,
                                                      int rank) {
    std::byte* const own = pages->data() + static_cast<std::size_t>(rank) * stride;
    {
        const std::lock_guard lock(table->mutex_);
        table->by_address_[own] = {allocation, pages, stride};
    }
    return {own, [weak = std::weak_ptr(table), pages = std::move(pages)](void* memory) {
                const auto alive = weak.lock();
                if (!alive) return;
                const std::lock_guard lock(alive->mutex_);
                alive->by_address_.erase(static_cast<std::byte*>(memory));
            }};
}

DPTK_INLINE ShmAddress ShmAllocations::find(const void* data, std::size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    auto next = by_address_.upper_bound(first);
    if (next == by_address_.begin()) return {};
    const auto& [own, entry] = *--next;
    const auto offset = static_cast<std::size_t>(first - own);
    if (offset + bytes > entry.stride) return {};
    return {entry.allocation, offset};
}

DPTK_INLINE std::byte* ShmAllocations::Parts::at(int rank, std::uint64_t offset) const noexcept {
    return first + static_cast<std::size_t>(rank) * stride + offset;
}

DPTK_INLINE ShmAllocations::Parts ShmAllocations::parts(std::uint64_t allocation) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [own, entry] : by_address_) {
        if (entry.allocation == allocation) return {entry.pages->data(), entry.stride};
    }
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
