#pragma once

#include "dptk/comm/algorithms/recursive.hpp"

#include <bit>
#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::recursive {

DPTK_INLINE void all_reduce_by_doubling(Messages& messages, const Buffer& data, const Reduction& reduction) {
    const int rank = messages.rank();
    const int size = messages.size();
    const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
    const int extra = size - paired;  // each pair of the first 2 * extra ranks acts as one rank
    const Scratch received(data);
    const Buffer& other = received.buffer();

    if (rank < 2 * extra && rank % 2 == 1) {
        messages.send(data, rank - 1);
        messages.recv(data, rank - 1);
        return;
    }
    if (rank < 2 * extra) {
        messages.recv(other, rank + 1);
        detail::combine(data, other, reduction);
    }
    const int position = rank < 2 * extra ? rank / 2 : rank - extra;
    const auto rank_at = [&](int at) { return at < extra ? 2 * at : at + extra; };
    for (int distance = 1; distance < paired; distance *= 2) {
        const int partner = position ^ distance;
        messages.exchange(data, other, rank_at(partner));
        if (partner > position) {
            detail::combine(data, other, reduction);
        } else {
            detail::combine(other, data, reduction);
            detail::convert(data, other);
        }
    }
    if (rank < 2 * extra) messages.send(data, rank + 1);
}

DPTK_INLINE void all_reduce_by_halving(Messages& messages, const Buffer& data, const Reduction& reduction) {
    const int rank = messages.rank();
    const int size = messages.size();
    const std::vector<std::size_t> counts = slice_counts(data.count, size);
    const auto slices = [&](int first, int many) {
        std::size_t begin = 0;
        std::size_t length = 0;
        for (int i = 0; i < first + many; ++i)
            (i < first ? begin : length) += counts[static_cast<std::size_t>(i)];
        return data.slice(begin, length);
    };
    const Scratch received(slices(0, (size + 1) / 2));
    for (int distance = size / 2; distance > 0; distance /= 2) {
        const int partner = rank ^ distance;
        const Buffer kept = slices(rank / distance * distance, distance);
        const Buffer in = received.buffer().slice(0, kept.count);
        messages.exchange(slices(partner / distance * distance, distance), in, partner);
        detail::combine(kept, in, reduction);
    }
    for (int distance = 1; distance < size; distance *= 2) {
        const int partner = rank ^ distance;
        messages.exchange(slices(rank / distance * distance, distance),
                          slices(partner / distance * distance, distance), partner);
    }
}

}  // namespace DPTK_NAMESPACE::algorithms::recursive
