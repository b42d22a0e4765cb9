/// Hierarchical all_reduce: through shared memory within a host, over the inner transport between hosts.
#pragma once

#include <span>

#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ShmAllReduce {
  public:
    explicit ShmAllReduce(ShmContext& context) : context_(context), region_(context.region()) {}

    void run(const Collective& call);

  private:
    /// Each rank reduces all elements, from the copies that all ranks have written to their slots.
    void reduce_copies(const Buffer& data, const Reduction& reduction);

    /// Each rank reduces all elements of the ranks' sources.
    void reduce_sources(const Buffer& data, const Reduction& reduction);

    /// Each rank reduces its slice and writes the result to the memory of all ranks.
    void in_place(const ShmContext::Parts& parts, const Buffer& data, const Reduction& reduction);

    /// Reduces in pieces through the staging buffers. Each rank writes the elements that other ranks reduce,
    /// and reads the results of the other ranks.
    void through_memory(const Buffer& data, const Reduction& reduction);

    /// Reduces the sources of this host's ranks, then reduces over all hosts, and writes the result to each
    /// of `results`. Sources and results have the shape of `like`.
    void reduce_range(const Buffer& like, std::span<void* const> results, const Reduction& reduction);

    /// The elements that this rank reduces. Empty if some host has no rank with this local rank, or if
    /// messages between hosts would otherwise become too small.
    [[nodiscard]] ElementSlice own_slice(const Buffer& data) const noexcept;

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/all_reduce.ipp"
#endif
