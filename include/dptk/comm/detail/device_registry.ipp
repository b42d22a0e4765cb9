#pragma once

#include "dptk/comm/detail/device_registry.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool register_device_transport(const DeviceTransportEntry& entry) {
    return device_registry().add(entry);
}

DPTK_INLINE DeviceTransportEntry choose_device_transport() {
    const std::vector<DeviceTransportEntry> entries = device_registry().all();
    const char* wish = std::getenv("DPTK_DEVICE_BACKEND");
    if (wish == nullptr || *wish == '\0') {
        const auto best = std::ranges::max_element(entries, {}, &DeviceTransportEntry::preference);
        if (best != entries.end()) return *best;
        throw ArgumentError(no_device_memory);
    }
    const auto named = std::ranges::find(entries, std::string_view(wish), &DeviceTransportEntry::name);
    if (named != entries.end()) return *named;
    std::string names;
    for (const DeviceTransportEntry& entry : entries) names += text(names.empty() ? "" : ", ", entry.name);
    throw ArgumentError(text("DPTK_DEVICE_BACKEND=", wish, ": this program has ",
                             names.empty() ? "no device transport" : names));
}

}  // namespace DPTK_NAMESPACE::detail
