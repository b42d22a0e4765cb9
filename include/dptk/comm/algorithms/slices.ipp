#pragma once

#include "dptk/comm/algorithms/slices.hpp"

#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::algorithms::slices {

DPTK_INLINE void reduce_scatter(Messages& messages, const Slices& input, const Buffer& output,
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
    std::vector<const void*> sources;
    for (const Buffer& part : parts) sources.push_back(part.data);
    void* const result = output.data;
    detail::reduce_together({sources, {&result, 1}, output.count, static_cast<double>(size)}, output,
                            output.dtype, reduction);
}

}  // namespace DPTK_NAMESPACE::algorithms::slices
