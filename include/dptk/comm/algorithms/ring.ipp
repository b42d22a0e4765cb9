#pragma once

#include "dptk/comm/algorithms/ring.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::ring {

DPTK_INLINE void all_gather(Messages& messages, const Slices& slices) {
    const int rank = messages.rank();
    for (int step = 0; step < messages.size() - 1; ++step)
        messages.shift(slices.wrapped(rank - step), slices.wrapped(rank - step - 1));
}

DPTK_INLINE void reduce_scatter_in_place(Messages& messages, const Slices& slices,
                                         const Reduction& reduction) {
    const int rank = messages.rank();
    const int segments = segment_count(slices[0]);  // slice 0 is the largest
    const Scratch received(segments_of(slices[0], segments)[0]);
    for (int step = 1; step < messages.size(); ++step) {
        const Slices out = segments_of(slices.wrapped(rank - step), segments);
        const Slices into = segments_of(slices.wrapped(rank - step - 1), segments);
        for (int k = 0; k < segments; ++k) {
            const Buffer in = received.buffer().slice(0, into[k].count);
            messages.shift(out[k], in);
            detail::combine(into[k], in, reduction);
        }
    }
}

DPTK_INLINE void reduce_scatter(Messages& messages, const Slices& input, const Buffer& result,
                                const Reduction& reduction) {
    const int rank = messages.rank();
    const int size = messages.size();
    if (size == 1) return detail::convert(result, input[0]);
    const int segments = segment_count(input[0]);
    const Scratch other(input[0].slice(0, size > 2 ? input[0].count : 0));
    Buffer partial = input.wrapped(rank - 1);
    for (int step = 1; step < size; ++step) {
        const Buffer& own = input.wrapped(rank - step - 1);
        // The last sum is received into `result`.
        const Buffer sum = ((size - 1 - step) % 2 == 0 ? result : other.buffer()).slice(0, own.count);
        const Slices out = segments_of(partial, segments);
        const Slices added = segments_of(own, segments);
        const Slices in = segments_of(sum, segments);
        for (int k = 0; k < segments; ++k) {
            messages.shift(out[k], in[k]);
            detail::combine(in[k], added[k], reduction);
        }
        partial = sum;
    }
}

DPTK_INLINE void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction) {
    const Slices slices(data, slice_counts(data.count, messages.size()));
    ring::reduce_scatter_in_place(messages, slices, reduction);
    ring::all_gather(messages, slices);
}

}  // namespace DPTK_NAMESPACE::algorithms::ring
