/// What is done to averages in device memory before the optimizer's step: PyTorch's clip_grad_norm_,
/// clip_grad_value_, and the unscaling of GradScaler.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"

namespace DPTK_NAMESPACE::detail {

/// In the lanes, behind what the program's streams have been given, which then go on behind it.
class DeviceClipping {
  public:
    /// The lanes must outlive this.
    explicit DeviceClipping(const DeviceLanes& lanes);

    /// Blocks where gradients are on several devices.
    GradientNorm clip_norm(std::span<const Buffer> gradients, double max_norm, double norm_type);

    void clip_value(std::span<const Buffer> gradients, double limit);

    /// Divides by the scale. Returns whether all are finite; blocks for that.
    [[nodiscard]] bool unscale(std::span<const Buffer> gradients, double scale);

  private:
    /// Those on a lane's device.
    [[nodiscard]] std::span<const Buffer> on(std::size_t n, std::span<const Buffer> gradients);

    [[nodiscard]] void* divisor(std::size_t n) const;

    [[nodiscard]] GradientNorm clip_norm_of_all(std::span<const Buffer> gradients, double max_norm,
                                                double norm_type);

    const DeviceLanes& lanes_;
    std::vector<OwnedBuffer> norms_;  // by lane: a norm, and what gradients are divided by
    std::vector<OwnedBuffer> found_;  // by lane: whether one was infinite or not a number
    std::vector<Buffer> selected_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_clipping.ipp"
#endif
