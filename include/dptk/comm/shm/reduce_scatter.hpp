/// reduce_scatter among the ranks of a host, and with those of other hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Each rank reduces what ranks of its place get, one a host, over its own host; then these exchange.
class ShmReduceScatter {
  public:
    explicit ShmReduceScatter(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    /// to = what the ranks of this rank's place get, in the order of the hosts, reduced over this host.
    void reduce_host(const Collective& call, const Buffer& to, const Reduction& reduction, double divisor);

    /// `count` elements of each leave_barrier, from `done` on; memory_of(rank of this host, leave_barrier) is
    /// where they are.
    template <class MemoryOf>
    void reduce_parts(const Buffer& like, const Buffer& to, std::size_t done, std::size_t count,
                      const Reduction& reduction, double divisor, MemoryOf&& memory_of) {
        for (int host = 0; host < context_.hosts().count(); ++host) {
            const std::vector<int>& ranks = context_.hosts().ranks[static_cast<std::size_t>(host)];
            const int leave_barrier = ranks[static_cast<std::size_t>(region_.rank())];
            for (int rank = 0; rank < region_.size(); ++rank)
                context_.source(rank) = memory_of(rank, leave_barrier);
            void* const result = to.slice(static_cast<std::size_t>(host) * like.count + done, count).data;
            reduce_together({context_.sources, {&result, 1}, count, divisor}, like, to.dtype, reduction);
        }
    }

    [[nodiscard]] static const std::byte* part_of(const Buffer& input, int leave_barrier, const Buffer& like);

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/reduce_scatter.ipp"
#endif
