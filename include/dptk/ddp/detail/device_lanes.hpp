/// The lanes of a training: one beside the program's stream on each device of its gradients.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

class DeviceLanes {
  public:
    /// None where not all of the parameters whose indices `order` has are on devices, and where the program
    /// has been built without dptk's kernels. `program`: the stream in which gradients are computed and used;
    /// the default stream of each device where there are several. Throws ArgumentError where it is another
    /// one then.
    [[nodiscard]] static DeviceLanes make(const std::vector<ParameterRef>& parameters,
                                          std::span<const std::size_t> order, StreamRef program);

    [[nodiscard]] bool empty() const noexcept { return lanes_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }
    [[nodiscard]] DeviceLane& operator[](std::size_t n) const noexcept { return *lanes_[n]; }

    /// For who may outlive this.
    [[nodiscard]] const std::shared_ptr<DeviceLane>& shared(std::size_t n) const noexcept;

    [[nodiscard]] bool has(Device device) const;
    /// size() where there is none.
    [[nodiscard]] std::size_t number_of(Device device) const;
    [[nodiscard]] DeviceLane& on(Device device) const { return *lanes_[number_of(device)]; }

    /// All of them.
    void wait_for_user_stream() const;
    void make_user_stream_wait() const;

  private:
    std::vector<std::shared_ptr<DeviceLane>> lanes_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_lanes.ipp"
#endif
