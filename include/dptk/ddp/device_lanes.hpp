/// The lanes of a training: one beside the program's stream on each device of its gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/device_calls.hpp"
#include "dptk/core/device_lane.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

class DeviceLanes {
  public:
    /// None where not all of the parameters whose indices `order` has are on devices, and where the program
    /// has been built without dptk's kernels. `program`: the stream in which gradients are computed and used;
    /// the default stream of each device where there are several. Throws ArgumentError where it is another
    /// one then.
    [[nodiscard]] static DeviceLanes make(const std::vector<ParameterRef>& parameters,
                                          std::span<const std::size_t> order, StreamRef program) {
        DeviceLanes made;
        if (order.empty()) return made;
        const auto is_on_host = [&](std::size_t i) { return parameters[i].device.type == DeviceType::cpu; };
        if (std::ranges::any_of(order, is_on_host)) return made;
        const LaneMaker make_lane = registered_lane_maker();
        if (make_lane == nullptr) return made;
        for (const ParameterRef& parameter : parameters) {  // in the order that all ranks have
            if (parameter.device.type == DeviceType::cpu || made.has(parameter.device)) continue;
            made.lanes_.push_back(make_lane(parameter.device.index, program));
        }
        if (made.size() > 1 && program != StreamRef())
            throw ArgumentError("a stream for a model that spans devices, which have streams of their own");
        return made;
    }

    [[nodiscard]] bool empty() const noexcept { return lanes_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }
    [[nodiscard]] DeviceLane& operator[](std::size_t n) const noexcept { return *lanes_[n]; }

    /// For who may outlive this.
    [[nodiscard]] const std::shared_ptr<DeviceLane>& shared(std::size_t n) const noexcept {
        return lanes_[n];
    }

    [[nodiscard]] bool has(Device device) const { return number_of(device) < size(); }
    /// size() where there is none.
    [[nodiscard]] std::size_t number_of(Device device) const {
        const auto found =
            std::ranges::find_if(lanes_, [&](const auto& lane) { return lane->device() == device; });
        return static_cast<std::size_t>(found - lanes_.begin());
    }
    [[nodiscard]] DeviceLane& on(Device device) const { return *lanes_[number_of(device)]; }

    /// All of them.
    void follow_program() const {
        for (const auto& lane : lanes_) lane->follow_program();
    }
    void lead_program() const {
        for (const auto& lane : lanes_) lane->lead_program();
    }

  private:
    std::vector<std::shared_ptr<DeviceLane>> lanes_;
};

}  // namespace dptk::detail
