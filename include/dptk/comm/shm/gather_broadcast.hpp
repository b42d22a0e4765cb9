/// Hierarchical all_gather and broadcast: through shared memory within a host, over the inner transport
/// between hosts.
#pragma once

#include <cstddef>

#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// all_gather: first the ranks with the same local rank exchange their parts between hosts, then each
/// host's ranks exchange all parts.
class ShmAllGather {
  public:
    explicit ShmAllGather(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    template <class MemoryOf>
    void collect(const Collective& call, std::size_t done, std::size_t some, MemoryOf&& memory_of) {
        for (int rank = 0; rank < region_.size(); ++rank) {
            if (rank != region_.rank()) place(call, rank, memory_of(rank), done, some);
        }
    }

    /// `from` holds bytes `done` to `done + some` of the parts of the ranks with local rank `rank`, in the
    /// order of the hosts. Copies these bytes to the positions of the parts in the output.
    void place(const Collective& call, int rank, const std::byte* from, std::size_t done, std::size_t some);

    ShmContext& context_;
    ShmRegion& region_;
};

/// broadcast: each rank of the root's host sends a slice to the other hosts.
class ShmBroadcast {
  public:
    explicit ShmBroadcast(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    /// `root` is the root's local rank.
    void run_on_root_host(const Collective& call, int root);

    void run_on_other_host(const Collective& call, int root_host);

    /// Broadcasts this rank's slice of `some` from the root's host to the other hosts. Returns the slice.
    ElementSlice exchange_slice(const Buffer& some, int root_host);

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/gather_broadcast.ipp"
#endif
