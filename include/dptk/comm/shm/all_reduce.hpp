/// all_reduce among the ranks of a host, and with those of other hosts.
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
    /// Each rank reduces all.
    void reduce_copies(const Buffer& data, const Reduction& reduction);

    /// Each rank reduces its slice, and writes it to all.
    void in_place(const ShmContext::Parts& parts, const Buffer& data, const Reduction& reduction);

    /// Piece by piece. Each rank writes what others reduce, and reads what they have reduced.
    void through_memory(const Buffer& data, const Reduction& reduction);

    /// results[k] = the sources of this host's ranks, reduced over all hosts as well. `like`: their shape.
    void reduce_range(const Buffer& like, std::span<void* const> results, const Reduction& reduction);

    /// The elements that this rank reduces: none where other hosts have no rank with its place, or where they
    /// would make small messages.
    [[nodiscard]] ElementSlice own_slice(const Buffer& data) const noexcept;

    ShmContext& context_;
    ShmRegion& region_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/all_reduce.ipp"
#endif
