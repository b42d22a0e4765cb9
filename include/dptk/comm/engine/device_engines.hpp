/// DeviceEngines: the engines of a process group for device memory. Each is connected at the first call on
/// its device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class DeviceEngines {
  public:
    /// `host` is the group's engine for host memory, which owns this object.
    explicit DeviceEngines(Engine& host) : host_(host) {}

    /// Returns the engine of a device. If only other devices are connected, returns the engine of the first
    /// one, whose calls throw, because the memory is on another device.
    [[nodiscard]] Engine& engine(int device);

    /// Returns the engine of a device. The first call for a device connects the engine, and is collective.
    [[nodiscard]] Engine& connect_once(int device);

    /// Executes a barrier on all devices.
    void run_barrier(const Collective& call);

    /// Starts a barrier on all devices.
    [[nodiscard]] std::vector<Work> start_barrier(const Collective& call,
                                                  const std::shared_ptr<const void>& keep_alive);

    void set_purpose(const CallPurpose& purpose);

    void launch_started();

    [[nodiscard]] bool is_connected_for(const DeviceCall& call) const;

    /// Executes a call on several devices in each process.
    void run(const DeviceCall& call);

  private:
    struct ConnectedGroup {
        std::vector<int> devices;
        std::unique_ptr<DeviceGroup> group;
    };

    /// Chooses the device transport, and checks that all ranks choose the same one. Collective.
    [[nodiscard]] DeviceTransportEntry choose();

    Engine& host_;
    // By device, in the order in which the devices were connected, which is the same on all ranks.
    std::vector<std::pair<int, EngineOwner>> engines_;
    std::vector<ConnectedGroup> groups_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/device_engines.ipp"
#endif
