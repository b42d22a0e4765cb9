#pragma once

#include "dptk/comm/engine/device_engines.hpp"

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/device_call.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/engine/engine_verbs.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Engine& DeviceEngines::engine(int device) {
    const bool is_known = detail::contains(engines_, device, &std::pair<int, EngineOwner>::first);
    return is_known || engines_.empty() ? connect_once(device) : *engines_.front().second;
}

DPTK_INLINE Engine& DeviceEngines::connect_once(int device) {
    const auto found = detail::find(engines_, device, &std::pair<int, EngineOwner>::first);
    if (found != engines_.end()) return *found->second;
    return *engines_.emplace_back(device, choose().connect(host_, device)).second;
}

DPTK_INLINE void DeviceEngines::run_barrier(const Collective& call) {
    for (const auto& [device, engine] : engines_) engine->run(call);
    for (const ConnectedGroup& connected : groups_) connected.group->finish();
}

DPTK_INLINE std::vector<Work> DeviceEngines::start_barrier(const Collective& call,
                                                           const std::shared_ptr<const void>& keep_alive) {
    for (const ConnectedGroup& connected : groups_) connected.group->finish();
    std::vector<Work> works;
    for (const auto& [device, engine] : engines_) works.push_back(engine->start(call, keep_alive));
    return works;
}

DPTK_INLINE void DeviceEngines::set_purpose(const CallPurpose& purpose) {
    for (const auto& [device, engine] : engines_) engine->set_purpose(purpose);
}

DPTK_INLINE void DeviceEngines::launch_started() {
    for (const auto& [device, engine] : engines_) engine->launch_started();
}

DPTK_INLINE bool DeviceEngines::is_connected_for(const DeviceCall& call) const {
    return detail::contains(groups_, call.device_indices(), &ConnectedGroup::devices);
}

DPTK_INLINE void DeviceEngines::run(const DeviceCall& call) {
    const std::vector<int> devices = call.device_indices();
    auto connected = detail::find(groups_, devices, &ConnectedGroup::devices);
    if (connected == groups_.end()) {
        launch_started();
        groups_.push_back({devices, choose().connect_several(host_, devices)});
        connected = groups_.end() - 1;
    }
    host_.control()->fail_job_on_error([&] { connected->group->run(call); });
}

DPTK_INLINE DeviceTransportEntry DeviceEngines::choose() {
    const DeviceTransportEntry transport = choose_device_transport();
    EngineVerbs ranks(host_);
    check_equal_tables(ranks, "device transports", transport.name);
    return transport;
}

}  // namespace DPTK_NAMESPACE::detail
