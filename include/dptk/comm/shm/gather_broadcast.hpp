/// all_gather and broadcast among the ranks of a host, and with those of other hosts.
#pragma once

#include <cstddef>

#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Ranks of one place on all hosts exchange their parts; then those of each host do.
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

    /// Puts bytes `done` to `done + some` of what ranks of that place give, one leave_barrier a host, where
    /// they belong.
    void place(const Collective& call, int rank, const std::byte* from, std::size_t done, std::size_t some);

    ShmContext& context_;
    ShmRegion& region_;
};

/// The ranks of the root's host each send a slice to the other hosts.
class ShmBroadcast {
  public:
    explicit ShmBroadcast(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    /// On the root's host; `root` is its place there.
    void spread(const Collective& call, int root);

    /// On another host than the root's.
    void receive(const Collective& call, int root_host);

    /// Returns which slice it was.
    ElementSlice exchange_slice(const Buffer& some, int root_host);

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/gather_broadcast.ipp"
#endif
