#pragma once

#include "dptk/comm/algorithms/exchange.hpp"

namespace DPTK_NAMESPACE::algorithms {

DPTK_INLINE int collective_tag(const Collective& call) noexcept {
    return max_tag + 1 + static_cast<int>(detail::hash_of(call) % (max_tag + 1));
}

DPTK_INLINE std::vector<std::size_t> slice_counts(std::size_t count, int ranks) {
    const auto parts = static_cast<std::size_t>(ranks);
    std::vector<std::size_t> counts(parts, count / parts);
    for (std::size_t i = 0; i < count % parts; ++i) ++counts[i];
    return counts;
}

DPTK_INLINE Slices::Slices(const Buffer& buffer, std::span<const std::size_t> counts) {
    std::size_t first = 0;
    for (const std::size_t count : counts) {
        slices_.push_back(buffer.slice(first, count));
        first += count;
    }
}

DPTK_INLINE const Buffer& Slices::operator[](int rank) const noexcept {
    return slices_[static_cast<std::size_t>(rank)];
}

DPTK_INLINE const Buffer& Slices::wrapped(int rank) const noexcept {
    const int size = static_cast<int>(slices_.size());
    return (*this)[((rank % size) + size) % size];
}

DPTK_INLINE int segment_count(const Buffer& buffer) noexcept {
    return buffer.count == 0 ? 1 : static_cast<int>((buffer.bytes() + segment_bytes - 1) / segment_bytes);
}

DPTK_INLINE Slices segments_of(const Buffer& buffer, int count) {
    return {buffer, slice_counts(buffer.count, count)};
}

}  // namespace DPTK_NAMESPACE::algorithms
