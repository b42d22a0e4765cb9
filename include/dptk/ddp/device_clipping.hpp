/// What is done to averages in device memory before the optimizer's step: PyTorch's clip_grad_norm_,
/// clip_grad_value_, and the unscaling of GradScaler.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/device_lane.hpp"
#include "dptk/core/device_math.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/device_lanes.hpp"

namespace dptk::detail {

/// In the lanes, behind what the program's streams have been given, which then go on behind it.
class DeviceClipping {
  public:
    /// The lanes must outlive this.
    explicit DeviceClipping(const DeviceLanes& lanes) : lanes_(lanes) {
        for (std::size_t n = 0; n < lanes_.size(); ++n) {
            norms_.push_back(allocate(lanes_[n], 2, DType::f64));
            found_.push_back(allocate(lanes_[n], 1, DType::i32));
        }
    }

    /// Blocks where gradients are on several devices.
    GradientNorm clip_norm(std::span<const Buffer> gradients, double max_norm, double norm_type) {
        lanes_.follow_program();
        for (std::size_t n = 0; n < lanes_.size(); ++n)
            lanes_[n].math().norm(on(n, gradients), norm_type, max_norm, norms_[n].elements);
        if (lanes_.size() > 1) return clip_norm_of_all(gradients, max_norm, norm_type);
        lanes_[0].math().divide(on(0, gradients), divisor(0));
        lanes_.lead_program();
        return GradientNorm(lanes_.shared(0), norms_[0]);
    }

    void clip_value(std::span<const Buffer> gradients, double limit) {
        lanes_.follow_program();
        for (std::size_t n = 0; n < lanes_.size(); ++n) lanes_[n].math().clamp(on(n, gradients), limit);
        lanes_.lead_program();
    }

    /// Divides by the scale. Returns whether all are finite; blocks for that.
    [[nodiscard]] bool unscale(std::span<const Buffer> gradients, double scale) {
        lanes_.follow_program();
        for (std::size_t n = 0; n < lanes_.size(); ++n) {
            const Buffer& found = found_[n].elements;
            const LaneCopy none{found, found.data};
            lanes_[n].copy({&none, 1}, {.factor = 0});
            lanes_[n].math().scale(on(n, gradients), 1 / scale, found);
        }
        lanes_.lead_program();
        bool finite = true;
        for (std::size_t n = 0; n < lanes_.size(); ++n) {
            std::int32_t found = 0;
            lanes_[n].read(found_[n].elements, &found);
            finite = finite && found == 0;
        }
        return finite;
    }

  private:
    /// Those on a lane's device.
    [[nodiscard]] std::span<const Buffer> on(std::size_t n, std::span<const Buffer> gradients) {
        if (lanes_.size() == 1) return gradients;
        selected_.clear();
        for (const Buffer& gradient : gradients)
            if (gradient.device == lanes_[n].device()) selected_.push_back(gradient);
        return selected_;
    }

    [[nodiscard]] void* divisor(std::size_t n) const {
        return static_cast<double*>(norms_[n].elements.data) + 1;
    }

    [[nodiscard]] GradientNorm clip_norm_of_all(std::span<const Buffer> gradients, double max_norm,
                                                double norm_type) {
        double sum = 0;
        for (std::size_t n = 0; n < lanes_.size(); ++n) {
            double own[2];
            lanes_[n].read(norms_[n].elements, own);
            sum = std::isinf(norm_type) ? larger(sum, own[0]) : sum + std::pow(own[0], norm_type);
        }
        const double norm = std::isinf(norm_type) ? sum : std::pow(sum, 1 / norm_type);
        const double factor = clip_factor(norm, max_norm);
        for (std::size_t n = 0; n < lanes_.size(); ++n)
            lanes_[n].math().scale(on(n, gradients), factor, found_[n].elements);
        lanes_.lead_program();
        return GradientNorm(norm);
    }

    const DeviceLanes& lanes_;
    std::vector<OwnedBuffer> norms_;  // by lane: a norm, and what gradients are divided by
    std::vector<OwnedBuffer> found_;  // by lane: whether one was infinite or not a number
    std::vector<Buffer> selected_;
};

}  // namespace dptk::detail
