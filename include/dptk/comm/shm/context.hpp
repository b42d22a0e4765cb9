/// Common parts of the shared-memory collectives: a barrier that checks the call's signature, and the
/// lookup of shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/shm/hosts.hpp"
#include "dptk/comm/shm/region.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A range of elements.
struct ElementSlice {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// The slice of `count` elements that one rank works on; empty if `rank` is not below `slices`. If the
/// elements start at a cache line, each slice does, too.
[[nodiscard]] ElementSlice shm_slice(std::size_t count, int slices, int rank) noexcept;

/// Copies bytes that another rank reads soon. Avoids memcpy, because its large copies bypass the cache.
void shm_copy(void* to, const void* from, std::size_t bytes) noexcept;

class ShmContext {
  public:
    using Parts = ShmAllocations::Parts;

    /// `across` executes a call among the ranks that have the same local rank as this rank, one on each host.
    /// It is null if there is only one host, or if some host has no such rank.
    ShmContext(std::unique_ptr<ShmRegion> region, ShmHosts hosts,
               std::function<void(const Collective&)> across);

    [[nodiscard]] ShmRegion& region() noexcept { return *region_; }
    [[nodiscard]] const ShmHosts& hosts() const noexcept { return hosts_; }
    [[nodiscard]] bool one_host() const noexcept { return hosts_.count() == 1; }

    /// This rank's index among the ranks of this host, and the number of these ranks.
    [[nodiscard]] int rank() const noexcept { return region_->rank(); }
    [[nodiscard]] int size() const noexcept { return region_->size(); }

    /// The number of ranks on all hosts together: the divisor of an average.
    [[nodiscard]] double world() const noexcept { return static_cast<double>(hosts_.world); }

    void across(const Collective& call) const { across_(call); }

    /// Barrier of the host's ranks with a check of the call's signature. Throws MismatchError on all of these
    /// ranks if their calls differ.
    void enter_barrier(const Collective& call, const ShmAddress& address = {});

    /// Barrier of a call whose elements fit into the record.
    void enter_barrier_with(const Buffer& elements, const Collective& call);

    /// Allocates zeroed memory that all ranks of the host share. If shared memory cannot be allocated, all of
    /// these ranks get private memory. Collective among the host's ranks. Throws MismatchError if the ranks
    /// request different sizes.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);

    [[nodiscard]] ShmAddress address_of(const Buffer& buffer) const;

    /// The allocation that the records of all ranks name. `first` is null if the records name different
    /// allocations, or no allocation.
    [[nodiscard]] Parts common_memory() const;

    /// Returns, for each rank, a pointer through which this process accesses that rank's memory at the same
    /// place of the allocation as `buffer`. Returns an empty vector if there are several hosts, or if the
    /// buffer's memory is private to this rank.
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& buffer) const;

    [[nodiscard]] bool some_memory_is_shared() const;

    /// The size in bytes of the pieces into which a large call is split: chosen for the caches on one host,
    /// and for messages between several hosts.
    [[nodiscard]] std::size_t stage_bytes() const noexcept;

    /// Calls action(index of the first element, elements) for each piece of `data`.
    template <class Action>
    void for_pieces(const Buffer& data, Action&& action) const {
        const std::size_t piece = std::max<std::size_t>(stage_bytes() / data.element_size(), 1);
        for (std::size_t done = 0; done < data.count; done += piece)
            action(done, data.slice(done, std::min(piece, data.count - done)));
    }

    // Addresses for the current reduction: the elements of each rank of the host, and the destinations.
    std::vector<const void*> sources;
    std::vector<void*> results;

    [[nodiscard]] const void*& source(int rank) noexcept { return sources[static_cast<std::size_t>(rank)]; }

    /// Memory for partial results, valid until the next call of this function.
    [[nodiscard]] void* scratch(std::size_t bytes);

  private:
    void enter_barrier(const Collective& call, CallRecord record);

    std::unique_ptr<ShmRegion> region_;
    ShmHosts hosts_;
    std::function<void(const Collective&)> across_;
    std::vector<std::byte> scratch_;
};

/// The operation and the dtype for the partial result of one host: averages are computed as sums, and dtypes
/// that need wide accumulation are widened.
[[nodiscard]] ReduceOp partial_op(const Reduction& reduction) noexcept;
[[nodiscard]] DType partial_dtype(DType dtype, const Reduction& reduction) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/context.ipp"
#endif
