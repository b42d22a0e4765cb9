/// reduce_scatter among the ranks of a host, and with those of other hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Each rank reduces what ranks of its place get, one a host, over its own host; then these exchange.
class NodeReduceScatter {
  public:
    explicit NodeReduceScatter(NodeGround& ground) : ground_(ground), hub_(ground.hub()) {}

    void run(const Collective& call);

  private:
    /// to = what the ranks of this rank's place get, in the order of the hosts, reduced over this host.
    void reduce_host(const Collective& call, const Buffer& to, const Reduction& reduction, double divisor);

    /// `count` elements of each part, from `done` on; memory_of(rank of this host, part) is where they are.
    template <class MemoryOf>
    void reduce_parts(const Buffer& like, const Buffer& to, std::size_t done, std::size_t count,
                      const Reduction& reduction, double divisor, MemoryOf&& memory_of) {
        for (int host = 0; host < ground_.hosts().count(); ++host) {
            const std::vector<int>& ranks = ground_.hosts().ranks[static_cast<std::size_t>(host)];
            const int part = ranks[static_cast<std::size_t>(hub_.rank())];
            for (int rank = 0; rank < hub_.size(); ++rank) ground_.source(rank) = memory_of(rank, part);
            void* const result = to.slice(static_cast<std::size_t>(host) * like.count + done, count).data;
            reduce_together({ground_.sources, {&result, 1}, count, divisor}, like, to.dtype, reduction);
        }
    }

    [[nodiscard]] static const std::byte* part_of(const Buffer& input, int part, const Buffer& like);

    NodeGround& ground_;
    NodeHub& hub_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/reduce_scatter.ipp"
#endif
