/// Registry of the transports for device memory. The header of such a transport registers it here; a
/// process group chooses one at its first call on a device.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dptk/comm/detail/named_entries.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct DeviceCall;

/// Executes the calls of a group whose ranks have several devices each.
class DeviceGroup {
  public:
    DeviceGroup() = default;
    DeviceGroup(const DeviceGroup&) = delete;
    DeviceGroup& operator=(const DeviceGroup&) = delete;
    virtual ~DeviceGroup() = default;

    /// Executes a call that has been checked on all ranks. Collective.
    virtual void run(const DeviceCall& call) = 0;

    /// Blocks until all started calls have ended. Throws the error of a call that has failed.
    virtual void finish() {}
};

/// A transport for device memory, as its header registers it.
struct DeviceTransportEntry {
    /// Name, for example "nccl" or "staged".
    std::string_view name;
    /// If several transports are registered, the one with the highest preference is used.
    int preference = 0;
    /// Creates an engine between the ranks of `host` for the memory of `device`, by default the current
    /// device. `host` must outlive the engine. Collective over `host`. Throws if the ranks cannot connect.
    EngineOwner (*connect)(Engine& host, std::optional<int> device);
    /// Connects several devices in each process. Collective over `host`.
    std::unique_ptr<DeviceGroup> (*connect_several)(Engine& host, const std::vector<int>& devices);
};

DPTK_EXPORT inline NamedEntries<DeviceTransportEntry>& device_registry() {
    static NamedEntries<DeviceTransportEntry> registry;
    return registry;
}

/// Adds a transport, unless one of that name is registered already. Returns whether it was added.
bool register_device_transport(const DeviceTransportEntry& entry);

/// Returns the transport that DPTK_DEVICE_BACKEND names, or the preferred one if the variable is not set.
/// Throws ArgumentError if no such transport is registered.
[[nodiscard]] DeviceTransportEntry choose_device_transport();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/device_registry.ipp"
#endif
