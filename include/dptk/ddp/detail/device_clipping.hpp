/// Gradient clipping and unscaling in device memory, before the optimizer's step: PyTorch's clip_grad_norm_
/// and clip_grad_value_, and the unscaling of GradScaler.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"

namespace DPTK_NAMESPACE::detail {

/// Enqueues its work on the lanes, after the work on the program's streams, and makes these streams wait
/// for the lanes. A lane is a CUDA stream with its events and kernels.
class DeviceClipping {
  public:
    /// The lanes must outlive this object.
    explicit DeviceClipping(const DeviceLanes& lanes);

    /// Clips by the norm of all gradients. Blocks if gradients are on several devices.
    GradientNorm clip_norm(std::span<const Buffer> gradients, double max_norm, double norm_type);

    void clip_value(std::span<const Buffer> gradients, double limit);

    /// Divides the gradients by `scale`. Returns whether all are finite; blocks until the result is known.
    [[nodiscard]] bool unscale(std::span<const Buffer> gradients, double scale);

  private:
    /// Returns those of `gradients` that are on the device of lane `n`.
    [[nodiscard]] std::span<const Buffer> on(std::size_t n, std::span<const Buffer> gradients);

    [[nodiscard]] void* divisor(std::size_t n) const;

    [[nodiscard]] GradientNorm clip_norm_of_all(std::span<const Buffer> gradients, double max_norm,
                                                double norm_type);

    const DeviceLanes& lanes_;
    std::vector<OwnedBuffer> norms_;  // by lane: the norm, and the divisor for the gradients
    std::vector<OwnedBuffer> found_;  // by lane: whether an element was infinite or NaN
    std::vector<Buffer> selected_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_clipping.ipp"
#endif
