#pragma once

#include "dptk/comm/algorithms/tree.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::tree {

DPTK_INLINE void broadcast(Messages& messages, const Buffer& data, int root) {
    const int size = messages.size();
    const int position = (messages.rank() - root + size) % size;  // the root's position is 0
    const auto rank_at = [&](int other) { return (other + root) % size; };

    // A rank receives from the position that equals its own without the highest set bit. It then sends to the
    // positions that equal its own with one higher bit set.
    int first_reach = 1;
    while (first_reach <= position) first_reach *= 2;
    const int segments = size == 2 ? 1 : segment_count(data);  // nobody sends a part on
    const Slices parts = segments_of(data, segments);
    for (int k = 0; k < segments; ++k) {
        if (position > 0) messages.recv(parts[k], rank_at(position - first_reach / 2));
        for (int reach = first_reach; position + reach < size; reach *= 2)
            messages.send(parts[k], rank_at(position + reach));
    }
}

DPTK_INLINE void reduce(Messages& messages, const Buffer& data, const Reduction& reduction, int root) {
    const int rank = messages.rank();
    const int size = messages.size();
    const Scratch received(data);
    const Scratch sum(data);
    // The tree's root is always rank 0: a tree with another root would not combine in rank order.
    const Buffer& into = root == 0 && rank == 0 ? data : sum.buffer();
    detail::convert(into, data);
    for (int step = 1; step < size; step *= 2) {
        if (rank % (2 * step) != 0) {
            messages.send(into, rank - step);
            break;
        }
        if (rank + step < size) {
            messages.recv(received.buffer(), rank + step);
            detail::combine(into, received.buffer(), reduction);
        }
    }
    if (root == 0) return;
    if (rank == 0) messages.send(into, root);
    if (rank == root) messages.recv(data, 0);
}

DPTK_INLINE void all_reduce(Messages& messages, const Buffer& data, const Reduction& reduction) {
    tree::reduce(messages, data, reduction, 0);
    tree::broadcast(messages, data, 0);
}

}  // namespace DPTK_NAMESPACE::algorithms::tree
