#pragma once

#include "dptk/ddp/detail/device_lanes.hpp"

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DeviceLanes DeviceLanes::make(const std::vector<ParameterRef>& parameters,
                                          std::span<const std::size_t> order, StreamRef program) {
    DeviceLanes made;
    if (order.empty()) return made;
    const auto is_on_host = [&](std::size_t i) { return parameters[i].device.type == DeviceType::cpu; };
    if (detail::any_of(order, is_on_host)) return made;
    const LaneMaker make_lane = registered_lane_maker();
    if (make_lane == nullptr) return made;
    for (const ParameterRef& parameter : parameters) {  // all ranks make the lanes in the same order
        if (parameter.device.type == DeviceType::cpu || made.has(parameter.device)) continue;
        made.lanes_.push_back(make_lane(parameter.device.index, program));
    }
    if (made.size() > 1 && program != StreamRef())
        throw ArgumentError(text("options.stream requires all parameters on one device, but they are on ",
                                 made.size(), " devices: leave options.stream unset to use the default ",
                                 "stream of each device"));
    return made;
}

DPTK_INLINE const std::shared_ptr<DeviceLane>& DeviceLanes::shared(std::size_t n) const noexcept {
    return lanes_[n];
}

DPTK_INLINE bool DeviceLanes::has(Device device) const {
    return number_of(device) < size();
}

DPTK_INLINE std::size_t DeviceLanes::number_of(Device device) const {
    const auto found = detail::find_if(lanes_, [&](const auto& lane) { return lane->device() == device; });
    return static_cast<std::size_t>(found - lanes_.begin());
}

DPTK_INLINE void DeviceLanes::wait_for_user_stream() const {
    for (const auto& lane : lanes_) lane->wait_for_user_stream();
}

DPTK_INLINE void DeviceLanes::make_user_stream_wait() const {
    for (const auto& lane : lanes_) lane->make_user_stream_wait();
}

}  // namespace DPTK_NAMESPACE::detail
