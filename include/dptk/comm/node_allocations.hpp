/// Where the ranks of one host find each other's memory: what allocate() gave them, in pages that all map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "dptk/comm/node_pages.hpp"

namespace dptk::detail {

/// Memory of one rank as the others can name it. Trivially copyable.
struct NodePlace {
    /// Which allocation; 0 where no other rank reaches the memory.
    std::uint64_t allocation = 0;
    /// From the beginning of the rank's own part.
    std::uint64_t offset = 0;
};

/// Of one rank, and all groups over the same ranks of its host.
class NodeAllocations {
  public:
    /// `stride` bytes for each rank. They leave the table with the memory that is returned, which is this
    /// rank's part.
    [[nodiscard]] static std::shared_ptr<void> add(const std::shared_ptr<NodeAllocations>& table,
                                                   std::uint64_t allocation, std::shared_ptr<NodePages> pages,
                                                   std::size_t stride, int rank) {
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

    [[nodiscard]] NodePlace find(const void* data, std::size_t bytes) const {
        const auto* first = static_cast<const std::byte*>(data);
        const std::lock_guard lock(mutex_);
        auto next = by_address_.upper_bound(first);
        if (next == by_address_.begin()) return {};
        const auto& [own, entry] = *--next;
        const auto offset = static_cast<std::size_t>(first - own);
        if (offset + bytes > entry.stride) return {};
        return {entry.allocation, offset};
    }

    /// The parts of all ranks, one stride after the other. Of an allocation that find() has found here; null
    /// where the user has let go of it since.
    struct Parts {
        std::byte* first = nullptr;
        std::size_t stride = 0;

        [[nodiscard]] std::byte* at(int rank, std::uint64_t offset) const noexcept {
            return first + static_cast<std::size_t>(rank) * stride + offset;
        }
    };

    [[nodiscard]] Parts parts(std::uint64_t allocation) const {
        const std::lock_guard lock(mutex_);
        for (const auto& [own, entry] : by_address_) {
            if (entry.allocation == allocation) return {entry.pages->data(), entry.stride};
        }
        return {};
    }

  private:
    struct Entry {
        std::uint64_t allocation;
        std::shared_ptr<NodePages> pages;
        std::size_t stride;
    };

    mutable std::mutex mutex_;
    std::map<const std::byte*, Entry, std::less<>> by_address_;
};

}  // namespace dptk::detail
