/// Table of shared-memory allocations: maps an address in one rank's memory to the corresponding addresses in
/// the memory of the other ranks of its host.
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

/// Identifies an address in one rank's shared memory to all ranks of the host. Trivially copyable.
struct ShmAddress {
    /// The identifier of the allocation; 0 if the memory is not shared.
    std::uint64_t allocation = 0;
    /// Bytes from the beginning of the rank's part of the allocation.
    std::uint64_t offset = 0;
};

/// One rank's allocations. A transport shares the table with its duplicates.
class ShmAllocations {
  public:
    /// Adds pages with `stride` bytes for each rank, and returns this rank's part. The entry is removed
    /// when the returned memory is freed.
    [[nodiscard]] static std::shared_ptr<void> add(const std::shared_ptr<ShmAllocations>& table,
                                                   std::uint64_t allocation, std::shared_ptr<ShmPages> pages,
                                                   std::size_t stride, int rank);

    [[nodiscard]] ShmAddress find(const void* data, std::size_t bytes) const;

    /// The parts of an allocation: rank r's part begins r * stride bytes after `first`. `first` is null if
    /// the allocation was freed after find() had returned its identifier.
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
