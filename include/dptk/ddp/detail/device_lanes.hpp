/// The lanes of a training: one for each device that has gradients. A lane is a CUDA stream with its events
/// and kernels.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

class DeviceLanes {
  public:
    /// Makes one lane for each device with parameters. Returns no lanes unless all parameters in `order`
    /// are on devices and the program was built with dptk's CUDA kernels. `program` is the stream on which
    /// gradients are computed and used; if it is default-constructed, each device's default stream is used.
    /// Throws ArgumentError if `program` is another stream and parameters are on several devices.
    [[nodiscard]] static DeviceLanes make(const std::vector<ParameterRef>& parameters,
                                          std::span<const std::size_t> order, StreamRef program);

    [[nodiscard]] bool empty() const noexcept { return lanes_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return lanes_.size(); }
    [[nodiscard]] DeviceLane& operator[](std::size_t n) const noexcept { return *lanes_[n]; }

    /// Returns a lane for shared ownership.
    [[nodiscard]] const std::shared_ptr<DeviceLane>& shared(std::size_t n) const noexcept;

    [[nodiscard]] bool has(Device device) const;
    /// Returns the index of the lane on `device`, or size() if this device has no lane.
    [[nodiscard]] std::size_t number_of(Device device) const;
    [[nodiscard]] DeviceLane& on(Device device) const { return *lanes_[number_of(device)]; }

    /// Makes all lanes wait for the program's streams.
    void wait_for_user_stream() const;
    /// Makes the program's streams wait for all lanes.
    void make_user_stream_wait() const;

  private:
    std::vector<std::shared_ptr<DeviceLane>> lanes_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_lanes.ipp"
#endif
