#pragma once

#include "dptk/comm/detail/device_registry.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE bool register_device_transport(const DeviceTransportEntry& entry) {
    return detail::device_registry().add(entry);
}

DPTK_INLINE DeviceTransportEntry choose_device_transport() {
    const std::vector<DeviceTransportEntry> entries = detail::device_registry().all();
    const char* wish = std::getenv("DPTK_DEVICE_BACKEND");
    if (wish == nullptr || *wish == '\0') {
        const auto best = std::ranges::max_element(entries, {}, &DeviceTransportEntry::preference);
        if (best != entries.end()) return *best;
        throw ArgumentError(detail::no_device_memory);
    }
    const auto named = std::ranges::find(entries, std::string_view(wish), &DeviceTransportEntry::name);
    if (named != entries.end()) return *named;
    std::string names;
    for (const DeviceTransportEntry& entry : entries)
        names += detail::text(names.empty() ? "" : ", ", entry.name);
    throw ArgumentError(detail::text("DPTK_DEVICE_BACKEND=", wish, ": this program has ",
                                     names.empty() ? "no device transport" : names));
}

DPTK_INLINE bool is_nccl_available() {
    const std::vector<DeviceTransportEntry> entries = detail::device_registry().all();
    return std::ranges::find(entries, "nccl", &DeviceTransportEntry::name) != entries.end();
}

}  // namespace DPTK_NAMESPACE
