#pragma once

#include "dptk/comm/algorithms/chain.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::chain {

DPTK_INLINE void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root) {
    const int rank = messages.rank();
    const int size = messages.size();
    const bool is_last = (rank + 1) % size == root;
    const int segments = segment_count(data);
    const Slices parts = segments_of(data, segments);
    const Scratch received(parts[0]);  // the largest
    for (int k = 0; k < segments; ++k) {
        if (is_last) {
            messages.send(parts[k], (rank + size - 1) % size);
            continue;
        }
        const Buffer sum = received.buffer().slice(0, parts[k].count);
        messages.recv(sum, (rank + 1) % size);
        if (rank == root) {
            detail::combine(parts[k], sum, reduction);
        } else {
            detail::combine(sum, parts[k], reduction);
            messages.send(sum, (rank + size - 1) % size);
        }
    }
}

}  // namespace DPTK_NAMESPACE::algorithms::chain
