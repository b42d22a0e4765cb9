#pragma once

#include "dptk/ddp/detail/value_hash.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Mixes eight bytes into a hash, by the multiplication and rotation of MurmurHash3.
[[nodiscard]] DPTK_INLINE std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
    return (std::rotl(hash ^ (word * 0x87c37b91114253d5U), 31) + 0x52dce729U) * 5;
}

/// Hashes four lanes side by side, so that the processor need not wait for each multiplication.
[[nodiscard]] DPTK_INLINE std::uint64_t bytes_hash(const std::byte* data, std::size_t bytes) noexcept {
    std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
    std::size_t done = 0;
    for (; bytes - done >= sizeof lanes; done += sizeof lanes) {
        std::array<std::uint64_t, 4> words;
        std::memcpy(words.data(), data + done, sizeof words);
        for (std::size_t i = 0; i < words.size(); ++i) lanes[i] = mixed(lanes[i], words[i]);
    }
    std::array<std::uint64_t, 4> rest = {};
    if (done < bytes) std::memcpy(rest.data(), data + done, bytes - done);
    std::uint64_t hash = bytes;
    for (std::size_t i = 0; i < rest.size(); ++i) hash = mixed(hash, mixed(lanes[i], rest[i]));
    return hash;
}

DPTK_INLINE std::uint64_t value_hash(const ParameterRef& parameter, const DeviceLanes* lanes) {
    const std::size_t bytes = parameter.value_buffer().bytes();
    if (bytes == 0) return 0;
    if (parameter.device.type == DeviceType::cpu)
        return bytes_hash(static_cast<const std::byte*>(parameter.value), bytes);
    std::vector<std::byte> copy(bytes);
    if (lanes != nullptr) {
        DeviceLane& lane = lanes->on(parameter.device);
        lane.wait_for_user_stream();
        lane.read(parameter.value_buffer(), copy.data());
    } else {
        device_calls().copy(copy.data(), parameter.value, bytes, parameter.device.index);
        device_calls().synchronize(parameter.device.index);
    }
    return bytes_hash(copy.data(), bytes);
}

DPTK_INLINE std::vector<std::uint64_t> value_hashes(const ModelParameters& parameters,
                                                    const DeviceLanes* lanes) {
    std::vector<std::uint64_t> hashes;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        hashes.push_back(parameters.ignored()[i] ? 0 : value_hash(parameters[i], lanes));
    return hashes;
}

DPTK_INLINE std::uint32_t short_hash(std::span<const std::uint64_t> hashes) {
    std::uint64_t hash = 0;
    for (const std::uint64_t each : hashes) hash = mixed(hash, each);
    return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
}

DPTK_INLINE Drift find_drift(ProcessGroup& group, const ModelParameters& parameters, const DeviceLanes* lanes,
                             bool compares) {
    std::vector<std::uint64_t> own(parameters.size());
    if (compares) own = value_hashes(parameters, lanes);
    own.push_back(compares ? 1 : 0);
    std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(group.size()));
    group.all_gather(own, all);
    const auto of = [&](int rank) {
        return std::span(all).subspan(static_cast<std::size_t>(rank) * own.size(), own.size());
    };
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        std::vector<std::vector<int>> holders;  // ranks with equal values; each begins with its lowest rank
        for (int rank = 0; rank < group.size(); ++rank) {
            if (of(rank).back() == 0) continue;
            auto equals = detail::find_if(
                holders, [&](const auto& ranks) { return of(ranks.front())[i] == of(rank)[i]; });
            if (equals == holders.end()) equals = holders.emplace(equals);
            equals->push_back(rank);
        }
        if (holders.size() < 2) continue;
        const auto most =
            detail::max_element(holders, [](const auto& a, const auto& b) { return a.size() < b.size(); });
        std::vector<int> others;
        for (const std::vector<int>& ranks : holders) {
            if (&ranks != &*most) others.insert(others.end(), ranks.begin(), ranks.end());
        }
        detail::sort(others);
        return {text("parameter ", parameters[i].name, " has other values on ",
                     others.size() == 1 ? "rank " : "ranks ", list_text(others), " than on ",
                     most->size() == 1 ? "rank " : "ranks ", list_text(*most)),
                parameters[i].name};
    }
    return {"the ranks' parameters differed, and are equal now", {}};
}

}  // namespace DPTK_NAMESPACE::detail
