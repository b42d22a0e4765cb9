#pragma once

#include "dptk/train/detail/parameter_hash.hpp"

#include <cstddef>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/device_calls.hpp"

namespace DPTK_NAMESPACE::detail {

/// Copies a value from device memory. Blocks.
[[nodiscard]] DPTK_INLINE std::vector<char> value_on_host(const ParameterRef& parameter) {
    std::vector<char> bytes(parameter.count * dtype_size(parameter.dtype));
    const DeviceCalls& calls = device_calls();
    calls.copy(bytes.data(), parameter.value, bytes.size(), parameter.device.index);
    calls.synchronize(parameter.device.index);
    return bytes;
}

DPTK_INLINE std::uint64_t parameter_hash(std::span<const ParameterRef> parameters) {
    std::uint64_t hash = fnv1a({});
    for (const ParameterRef& parameter : parameters) {
        if (parameter.device.type == DeviceType::cpu) {
            const std::size_t bytes = parameter.count * dtype_size(parameter.dtype);
            hash = fnv1a({static_cast<const char*>(parameter.value), bytes}, hash);
        } else {
            const std::vector<char> bytes = value_on_host(parameter);
            hash = fnv1a({bytes.data(), bytes.size()}, hash);
        }
    }
    return hash;
}

DPTK_INLINE std::uint64_t agreed_parameter_hash(ProcessGroup& group,
                                                std::span<const ParameterRef> parameters) {
    const std::vector<std::uint64_t> hashes = group.all_gather_value(parameter_hash(parameters));
    for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
        if (hashes[rank] != hashes[0]) {
            throw_agreed(
                group, MismatchError(text("the parameters of rank ", rank, " differ from those of rank 0")));
        }
    }
    return hashes[0];
}

}  // namespace DPTK_NAMESPACE::detail
