#pragma once

#include "dptk/data/host_dataset.hpp"

#include <algorithm>
#include <iterator>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void HostSamples::add(std::string_view bytes) {
    own_samples_ += bytes;
    own_ends_.push_back(own_samples_.size());
}

DPTK_INLINE bool HostSamples::is_full() const noexcept {
    constexpr std::size_t smallest_block = 1 << 20;
    return own_samples_.size() >= std::max(smallest_block, own_bytes_ / 16);
}

DPTK_INLINE void HostSamples::share(ProcessGroup& host) {
    const auto bytes_of = [](const auto& elements) {
        return std::span(reinterpret_cast<const std::uint8_t*>(elements.data()),
                         elements.size() * sizeof elements[0]);
    };
    const std::span<const std::uint8_t> ends = bytes_of(own_ends_);
    const std::span<const std::uint8_t> samples = bytes_of(own_samples_);
    const std::vector<std::size_t> sizes = host.all_gather_value(ends.size() + samples.size());
    const std::vector<std::size_t> counts = host.all_gather_value(own_ends_.size());
    const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
    if (largest == 0) return;
    const auto write = [&](std::uint8_t* to) {
        std::copy(samples.begin(), samples.end(), std::copy(ends.begin(), ends.end(), to));
    };
    Allocation<std::uint8_t> memory = host.allocate<std::uint8_t>(largest);
    const std::vector<void*> peers =
        host.size() == 1 ? std::vector<void*>{memory.data()}
                         : host.engine().peer_memory({memory.data(), memory.size(), DType::u8});
    if (!peers.empty()) {
        write(memory.data());
        host.barrier();
        for (std::size_t rank = 0; rank < peers.size(); ++rank)
            add_block(rank, static_cast<const std::uint8_t*>(peers[rank]), counts[rank]);
        memory_.push_back(std::move(memory));
        is_shared_ = host.size() > 1;
    } else {
        std::vector<std::uint8_t> own(ends.size() + samples.size());
        write(own.data());
        copies_.push_back(host.all_gather_uneven(own).elements);
        const std::uint8_t* begin = copies_.back().data();
        for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
            add_block(rank, begin, counts[rank]);
            begin += sizes[rank];
        }
    }
    for (const std::size_t size : sizes) bytes_ += size;
    own_bytes_ += own_samples_.size();
    own_ends_.clear();
    own_samples_.clear();
}

DPTK_INLINE void HostSamples::finish() {
    own_ends_ = {};
    own_samples_ = {};
}

DPTK_INLINE std::string_view HostSamples::operator[](std::size_t index) const {
    const std::vector<Block>& blocks = ranks_[index % ranks_.size()];
    std::size_t at = index / ranks_.size();
    const auto block = std::upper_bound(blocks.begin(), blocks.end(), at,
                                        [](std::size_t one, const Block& other) { return one < other.last; });
    if (block != blocks.begin()) at -= std::prev(block)->last;
    std::uint64_t begin = 0, end = 0;
    if (at > 0) std::memcpy(&begin, block->ends + (at - 1) * sizeof begin, sizeof begin);
    std::memcpy(&end, block->ends + at * sizeof end, sizeof end);
    return {block->samples + begin, end - begin};
}

DPTK_INLINE void HostSamples::add_block(std::size_t rank, const std::uint8_t* begin, std::size_t samples) {
    if (samples == 0) return;
    const std::size_t before = ranks_[rank].empty() ? 0 : ranks_[rank].back().last;
    const auto* const first = reinterpret_cast<const char*>(begin + samples * sizeof(std::uint64_t));
    ranks_[rank].push_back({before + samples, begin, first});
}

}  // namespace DPTK_NAMESPACE::detail
