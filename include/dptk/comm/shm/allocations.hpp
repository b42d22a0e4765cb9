/// Where the ranks of one host find each other's memory: what allocate() gave them, in pages that all map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "dptk/comm/shm/pages.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Memory of one rank as the others can name it. Trivially copyable.
struct ShmAddress {
    /// Which allocation; 0 where no other rank reaches the memory.
    std::uint64_t allocation = 0;
    /// From the beginning of the rank's own leave_barrier.
    std::uint64_t offset = 0;
};

/// Of one rank, and all groups over the same ranks of its host.
class ShmAllocations {
  public:
    /// `stride` bytes for each rank. They leave the table with the memory that is returned, which is this
    /// rank's leave_barrier.
    [[nodiscard]] static std::shared_ptr<void> add(const std::shared_ptr<ShmAllocations>& table,
                                                   std::uint64_t allocation, std::shared_ptr<ShmPages> pages,
                                                   std::size_t stride, int rank);

    [[nodiscard]] ShmAddress find(const void* data, std::size_t bytes) const;

    /// The parts of all ranks, one stride after the other. Of an allocation that find() has found here; null
    /// where the user has let go of it since.
    struct Parts {
        std::byte* first = nullptr;
        std::size_t stride = 0;

        [[nodiscard]] std::byte* at(int rank, std::uint64_t offset) const noexcept;
    };

    [[nodiscard]] Parts parts(std::uint64_t allocation) const;

  private:
    struct Entry {
        std::uint64_t allocation;
        std::shared_ptr<ShmPages> pages;
        std::size_t stride;
    };

    mutable std::mutex mutex_;
    std::map<const std::byte*, Entry, std::less<>> by_address_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/allocations.ipp"
#endif
