#pragma once

#include "dptk/comm/detail/device_registry.hpp"

#include <cstdlib>
#include <string>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool register_device_transport(const DeviceTransportEntry& entry) {
    return device_registry().add(entry);
}

DPTK_INLINE DeviceTransportEntry choose_device_transport() {
    const std::vector<DeviceTransportEntry> entries = device_registry().all();
    const char* requested = std::getenv("DPTK_DEVICE_BACKEND");
    if (requested == nullptr || *requested == '\0') {
        const auto best = detail::max_element(
            entries, [](const auto& a, const auto& b) { return a.preference < b.preference; });
        if (best != entries.end()) return *best;
        throw ArgumentError(no_device_memory);
    }
    const auto named = detail::find(entries, std::string_view(requested), &DeviceTransportEntry::name);
    if (named != entries.end()) return *named;
    std::string names;
    for (const DeviceTransportEntry& entry : entries) names += text(names.empty() ? "" : ", ", entry.name);
    throw ArgumentError(text("invalid DPTK_DEVICE_BACKEND='", requested, "': ",
                             names.empty() ? "this program includes no transport for device memory: include "
                                             "<dptk/comm/nccl.hpp> or <dptk/comm/staged.hpp>"
                                           : "expected one of the transports of this program: " + names));
}

}  // namespace DPTK_NAMESPACE::detail
