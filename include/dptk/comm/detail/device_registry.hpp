/// By which transport a process group serves device memory. A header of such a transport registers it here;
/// the group's first call on a device chooses one.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/named_entries.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Carries out the calls of a group whose ranks have several devices each.
class DeviceGroup {
  public:
    DeviceGroup() = default;
    DeviceGroup(const DeviceGroup&) = delete;
    DeviceGroup& operator=(const DeviceGroup&) = delete;
    virtual ~DeviceGroup() = default;

    /// Collective; each call that has been checked on all ranks.
    virtual void run(const DeviceCall& call) = 0;

    /// Blocks until all that was started is done. Throws what it has failed with.
    virtual void finish() {}
};

struct DeviceTransportEntry {
    /// "nccl", "staged"
    std::string_view name;
    /// Where several are registered, the one with the highest is taken.
    int preference = 0;
    /// A channel for the memory of a device, the current one unless it is given, between the ranks of `host`,
    /// which outlives it. Collective over `host`. Throws agreed errors where it cannot be.
    std::unique_ptr<Channel> (*connect)(Channel& host, std::optional<int> device);
    /// The same for several devices in each process.
    std::unique_ptr<DeviceGroup> (*connect_several)(Channel& host, const std::vector<int>& devices);
};

DPTK_EXPORT inline NamedEntries<DeviceTransportEntry>& device_registry() {
    static NamedEntries<DeviceTransportEntry> registry;
    return registry;
}

/// Adds a transport, unless one of its name is there.
bool register_device_transport(const DeviceTransportEntry& entry);

/// The one that DPTK_DEVICE_BACKEND names, or else the preferred one. Throws ArgumentError where there is
/// none.
[[nodiscard]] DeviceTransportEntry choose_device_transport();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/device_registry.ipp"
#endif
