/// What the collectives of a host's ranks have in common: they come together with notes, see that all make
/// the same call, and find the memory that they share.
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

/// The slice that one of so many ranks works on. They begin where lines of the cache do, if the elements do.
[[nodiscard]] ElementSlice shm_slice(std::size_t count, int slices, int rank) noexcept;

/// Not by memcpy, which passes the caches by where much is copied: the other rank reads it at once.
void shm_copy(void* to, const void* from, std::size_t bytes) noexcept;

class ShmContext {
  public:
    using Parts = ShmAllocations::Parts;

    /// `across` carries out calls with the ranks that have this one's place on the other hosts; null where
    /// there is one host, or no such rank on one of them.
    ShmContext(std::unique_ptr<ShmRegion> region, ShmHosts hosts,
               std::function<void(const Collective&)> across);

    [[nodiscard]] ShmRegion& region() noexcept { return *region_; }
    [[nodiscard]] const ShmHosts& hosts() const noexcept { return hosts_; }
    [[nodiscard]] bool one_host() const noexcept { return hosts_.count() == 1; }

    /// Of this host.
    [[nodiscard]] int rank() const noexcept { return region_->rank(); }
    [[nodiscard]] int size() const noexcept { return region_->size(); }

    /// By how many an average divides.
    [[nodiscard]] double world() const noexcept { return static_cast<double>(hosts_.world); }

    void across(const Collective& call) const { across_(call); }

    /// Comes together with the other ranks of the host. Throws MismatchError, on all of them, where one makes
    /// another call.
    void enter_barrier(const Collective& call, const ShmAddress& place = {});

    /// Zeroed memory that all ranks of the host reach; of this rank's own where the system gives them none,
    /// on all of them. Collective among them. Throws MismatchError where they ask for different sizes.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);

    [[nodiscard]] ShmAddress place_of(const Buffer& buffer) const;

    /// Where all ranks' notes name one allocation: that one. Otherwise nobody's memory is reached.
    [[nodiscard]] Parts common_memory() const;

    /// All ranks' memory at that place; none where there are other hosts, or it is this rank's alone.
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& buffer) const;

    [[nodiscard]] bool some_memory_is_shared() const;

    /// In how many bytes elements go through shared memory: as the caches like it, or messages.
    [[nodiscard]] std::size_t stage_bytes() const noexcept;

    /// action(first element, elements)
    template <class Action>
    void for_pieces(const Buffer& data, Action&& action) const {
        const std::size_t piece = std::max<std::size_t>(stage_bytes() / data.element_size(), 1);
        for (std::size_t done = 0; done < data.count; done += piece)
            action(done, data.slice(done, std::min(piece, data.count - done)));
    }

    // Of the reduction under way: where each rank of the host has its elements, and where the result goes.
    std::vector<const void*> sources;
    std::vector<void*> results;

    [[nodiscard]] const void*& source(int rank) noexcept { return sources[static_cast<std::size_t>(rank)]; }

    /// Memory for partial results, until the next call of this.
    [[nodiscard]] void* scratch(std::size_t bytes);

  private:
    std::unique_ptr<ShmRegion> region_;
    ShmHosts hosts_;
    std::function<void(const Collective&)> across_;
    std::vector<std::byte> scratch_;
};

/// Of the ranks of a host, before the hosts' results are combined: sums, and in the wide dtype.
[[nodiscard]] ReduceOp partial_op(const Reduction& reduction) noexcept;
[[nodiscard]] DType partial_dtype(DType dtype, const Reduction& reduction) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/context.ipp"
#endif
