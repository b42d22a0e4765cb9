/// One number for all parameters of a model, to see that the ranks still have the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/device_calls.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk {

namespace detail {

/// The bytes of a value in device memory. Blocks.
[[nodiscard]] inline std::vector<char> value_on_host(const ParameterRef& parameter) {
    std::vector<char> bytes(parameter.count * dtype_size(parameter.dtype));
    const DeviceCalls& calls = device_calls();
    calls.copy(bytes.data(), parameter.value, bytes.size(), parameter.device.index);
    calls.synchronize(parameter.device.index);
    return bytes;
}

}  // namespace detail

/// FNV-1a over the bytes of all values, in order and in the layout that they have in memory. Values on a
/// device must be complete, but for what its default stream still does: blocks for that.
[[nodiscard]] inline std::uint64_t parameter_hash(std::span<const ParameterRef> parameters) {
    std::uint64_t hash = detail::fnv1a({});
    for (const ParameterRef& parameter : parameters) {
        if (parameter.device.type == DeviceType::cpu) {
            const std::size_t bytes = parameter.count * dtype_size(parameter.dtype);
            hash = detail::fnv1a({static_cast<const char*>(parameter.value), bytes}, hash);
        } else {
            const std::vector<char> bytes = detail::value_on_host(parameter);
            hash = detail::fnv1a({bytes.data(), bytes.size()}, hash);
        }
    }
    return hash;
}

/// The hash that all ranks have. Throws MismatchError on all ranks, naming the first that differs from rank
/// 0. Collective.
[[nodiscard]] inline std::uint64_t agreed_parameter_hash(ProcessGroup& group,
                                                         std::span<const ParameterRef> parameters) {
    const std::vector<std::uint64_t> hashes = group.all_gather_value(parameter_hash(parameters));
    for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
        if (hashes[rank] != hashes[0]) {
            detail::throw_agreed(group, MismatchError(detail::text("the parameters of rank ", rank,
                                                                   " differ from those of rank 0")));
        }
    }
    return hashes[0];
}

}  // namespace dptk
