#pragma once

#include "dptk/comm/algorithms/ring.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::ring {

DPTK_INLINE void all_gather(Messages& messages, const Slices& slices) {
    const int rank = messages.rank();
    for (int step = 0; step < messages.size() - 1; ++step)
        messages.shift(slices.wrapped(rank - step), slices.wrapped(rank - step - 1));
}

DPTK_INLINE void reduce_scatter(Messages& messages, const Slices& slices, const Reduction& reduction) {
    const int rank = messages.rank();
    const Scratch received(slices[0]);  // slice 0 is the largest
    for (int step = 1; step < messages.size(); ++step) {
        const Buffer& into = slices.wrapped(rank - step - 1);
        const Buffer in = received.buffer().slice(0, into.count);
        messages.shift(slices.wrapped(rank - step), in);
        detail::combine(into, in, reduction);
    }
}

DPTK_INLINE void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction) {
    const Slices slices(data, slice_counts(data.count, messages.size()));
    ring::reduce_scatter(messages, slices, reduction);
    ring::all_gather(messages, slices);
}

}  // namespace DPTK_NAMESPACE::algorithms::ring
