/// Reductions in rank order, rounded once: each rank collects one slice of all ranks' buffers, combines it in
/// accumulation_dtype, and hands out the result. For 16-bit formats, and for functions of the user's, which
/// need only be associative.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/local_reduce.hpp"

namespace dptk::algorithms::slices {

/// Combines the parts, all of `like`'s shape, in their order and piece by piece in the cache:
/// deliver(piece of the result, position of its first element).
template <class Deliver>
void combine_pieces(const Buffer& like, const std::vector<Buffer>& parts, const Reduction& reduction,
                    Deliver&& deliver) {
    constexpr std::size_t piece_bytes = 16384;
    const bool widen = detail::needs_wide_accumulation(like.dtype, reduction);
    Buffer sum = like;
    if (widen) sum.dtype = detail::accumulation_dtype(like.dtype);
    sum.count = std::min(like.count, std::max<std::size_t>(piece_bytes / sum.element_size(), 1));
    Buffer rounded = like;
    rounded.count = sum.count;
    const Scratch sum_memory(sum);
    const Scratch part_memory(sum);
    const Scratch rounded_memory(rounded);
    for (std::size_t done = 0; done < like.count; done += sum.count) {
        const std::size_t count = std::min(sum.count, like.count - done);
        const Buffer total = sum_memory.buffer().slice(0, count);
        const Buffer wide_part = part_memory.buffer().slice(0, count);
        detail::convert(total, parts[0].slice(done, count));
        for (std::size_t i = 1; i < parts.size(); ++i) {
            const Buffer part = parts[i].slice(done, count);
            if (widen) detail::convert(wide_part, part);
            detail::combine(total, widen ? wide_part : part, reduction);
        }
        if (reduction.averages()) detail::divide(total, static_cast<double>(parts.size()));
        const Buffer result = widen ? rounded_memory.buffer().slice(0, count) : total;
        if (widen) detail::convert(result, total);
        deliver(result, done);
    }
}

/// output = this rank's slice of all ranks' inputs, combined. `input` is cut as `slices` says. An average is
/// divided.
inline void reduce_scatter(Messages& messages, const Slices& input, const Buffer& output,
                           const Reduction& reduction) {
    const int rank = messages.rank();
    const auto size = static_cast<std::size_t>(messages.size());
    Buffer all = output;
    all.count *= size;
    const Scratch received(all);
    std::vector<Buffer> parts;
    for (std::size_t i = 0; i < size; ++i)
        parts.push_back(received.buffer().slice(i * output.count, output.count));
    parts[static_cast<std::size_t>(rank)] = input[rank];
    with_each_partner(messages, [&](int partner) {
        messages.exchange(input[partner], parts[static_cast<std::size_t>(partner)], partner);
    });
    combine_pieces(output, parts, reduction, [&](const Buffer& piece, std::size_t done) {
        detail::convert(output.slice(done, piece.count), piece);
    });
}

}  // namespace dptk::algorithms::slices
