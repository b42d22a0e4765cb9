/// Rings: each rank sends to the next and receives from the one before, ranks - 1 times, one slice at a time.
/// Every element passes each link once: best for large buffers.
#pragma once

#include <span>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/local_reduce.hpp"

namespace dptk::algorithms::ring {

/// The slices of all ranks, to all; each rank's own is in its place.
inline void all_gather(Messages& messages, const Slices& slices) {
    const int rank = messages.rank();
    for (int step = 0; step < messages.size() - 1; ++step)
        messages.shift(slices.around(rank - step), slices.around(rank - step - 1));
}

/// Slice r of the sum arrives in slice r of rank r's buffer; the other slices hold parts of sums.
inline void reduce_scatter(Messages& messages, const Slices& slices, const Reduction& reduction) {
    const int rank = messages.rank();
    const Scratch received(slices[0]);  // the largest
    for (int step = 1; step < messages.size(); ++step) {
        const Buffer& into = slices.around(rank - step - 1);
        const Buffer in = received.buffer().slice(0, into.count);
        messages.shift(slices.around(rank - step), in);
        detail::combine(into, in, reduction);
    }
}

/// Sums slices around the ring, then passes them around. An average is not divided. The operation must be
/// commutative.
inline void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction) {
    const Slices slices(data, slice_counts(data.count, messages.size()));
    ring::reduce_scatter(messages, slices, reduction);
    ring::all_gather(messages, slices);
}

}  // namespace dptk::algorithms::ring
