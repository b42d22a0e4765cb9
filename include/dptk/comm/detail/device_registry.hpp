/// Registry of the transports for device memory. The header of such a transport registers it here; a
/// process group chooses one at its first call on a device.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/named_entries.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Executes the calls of a group whose ranks have several devices each.
class DeviceGroup {
  public:
    DeviceGroup() = default;
    DeviceGroup(const DeviceGroup&) = delete;
    DeviceGroup& operator=(const DeviceGroup&) = delete;
    virtual ~DeviceGroup() = default;

    /// Executes a call that has been checked on all ranks. Collective.
    virtual void run(const DeviceCall& call) = 0;

    /// Blocks until all started calls have ended. Throws their error if one has failed.
    virtual void finish() {}
};

/// A transport for device memory, as its header registers it.
struct DeviceTransportEntry {
    /// Name, for example "nccl" or "staged".
    std::string_view name;
    /// If several transports are registered, the one with the highest preference is used.
    int preference = 0;
    /// Creates a channel for the memory of `device`, or of the current device, between the ranks of `host`,
    /// which outlives it. Collective over `host`. Throws an agreed error if it fails.
    std::unique_ptr<Channel> (*connect)(Channel& host, std::optional<int> device);
    /// Connects several devices in each process. Collective over `host`.
    std::unique_ptr<DeviceGroup> (*connect_several)(Channel& host, const std::vector<int>& devices);
};

DPTK_EXPORT inline NamedEntries<DeviceTransportEntry>& device_registry() {
    static NamedEntries<DeviceTransportEntry> registry;
    return registry;
}

/// Adds a transport, unless one of that name is registered already. Returns whether it was added.
bool register_device_transport(const DeviceTransportEntry& entry);

/// Returns the transport that DPTK_DEVICE_BACKEND names, or else the preferred one. Throws ArgumentError if
/// it is not registered.
[[nodiscard]] DeviceTransportEntry choose_device_transport();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/device_registry.ipp"
#endif
