/// Hierarchical reduce_scatter: through shared memory within a host, over the inner transport between
/// hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// First, each rank reduces over its own host the parts that belong to the ranks with its local rank, one
/// part per host. Then the ranks with the same local rank reduce_scatter these partial results between hosts.
class ShmReduceScatter {
  public:
    explicit ShmReduceScatter(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    /// Reduces over this host the parts that belong to the ranks with this rank's local rank, one part per
    /// host. Writes the results to `to`, in the order of the hosts.
    void reduce_host(const Collective& call, const Buffer& to, const Reduction& reduction, double divisor);

    /// Reduces `count` elements of each of these parts, starting at element `done`. memory_of(local rank,
    /// part) must return the address of these elements in that rank's memory.
    template <class MemoryOf>
    void reduce_parts(const Buffer& like, const Buffer& to, std::size_t done, std::size_t count,
                      const Reduction& reduction, double divisor, MemoryOf&& memory_of) {
        for (int host = 0; host < context_.hosts().count(); ++host) {
            const std::vector<int>& ranks = context_.hosts().ranks[static_cast<std::size_t>(host)];
            const int part = ranks[static_cast<std::size_t>(region_.rank())];
            for (int rank = 0; rank < region_.size(); ++rank) context_.source(rank) = memory_of(rank, part);
            void* const result = to.slice(static_cast<std::size_t>(host) * like.count + done, count).data;
            reduce_together({context_.sources, {&result, 1}, count, divisor}, like, to.dtype, reduction);
        }
    }

    [[nodiscard]] static const std::byte* part_of(const Buffer& input, int part, const Buffer& like);

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/reduce_scatter.ipp"
#endif
