#pragma once

#include "dptk/ddp/detail/device_clipping.hpp"

#include <cmath>
#include <cstdint>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DeviceClipping::DeviceClipping(const DeviceLanes& lanes) : lanes_(lanes) {
    for (std::size_t n = 0; n < lanes_.size(); ++n) {
        norms_.push_back(allocate(lanes_[n], 2, DType::f64));
        found_.push_back(allocate(lanes_[n], 1, DType::i32));
    }
}

DPTK_INLINE GradientNorm DeviceClipping::clip_norm(std::span<const Buffer> gradients, double max_norm,
                                                   double norm_type) {
    lanes_.wait_for_user_stream();
    for (std::size_t n = 0; n < lanes_.size(); ++n)
        lanes_[n].math().norm(on(n, gradients), norm_type, max_norm, norms_[n].elements);
    if (lanes_.size() > 1) return clip_norm_of_all(gradients, max_norm, norm_type);
    lanes_[0].math().divide(on(0, gradients), divisor(0));
    lanes_.make_user_stream_wait();
    return GradientNorm(lanes_.shared(0), norms_[0]);
}

DPTK_INLINE void DeviceClipping::clip_value(std::span<const Buffer> gradients, double limit) {
    lanes_.wait_for_user_stream();
    for (std::size_t n = 0; n < lanes_.size(); ++n) lanes_[n].math().clamp(on(n, gradients), limit);
    lanes_.make_user_stream_wait();
}

DPTK_INLINE bool DeviceClipping::unscale(std::span<const Buffer> gradients, double scale) {
    lanes_.wait_for_user_stream();
    for (std::size_t n = 0; n < lanes_.size(); ++n) {
        const Buffer& found = found_[n].elements;
        const LaneCopy none{found, found.data};
        lanes_[n].copy({&none, 1}, {.factor = 0});
        lanes_[n].math().scale(on(n, gradients), 1 / scale, found);
    }
    lanes_.make_user_stream_wait();
    bool finite = true;
    for (std::size_t n = 0; n < lanes_.size(); ++n) {
        std::int32_t found = 0;
        lanes_[n].read(found_[n].elements, &found);
        finite = finite && found == 0;
    }
    return finite;
}

DPTK_INLINE std::span<const Buffer> DeviceClipping::on(std::size_t n, std::span<const Buffer> gradients) {
    if (lanes_.size() == 1) return gradients;
    selected_.clear();
    for (const Buffer& gradient : gradients)
        if (gradient.device == lanes_[n].device()) selected_.push_back(gradient);
    return selected_;
}

DPTK_INLINE void* DeviceClipping::divisor(std::size_t n) const {
    return static_cast<double*>(norms_[n].elements.data) + 1;
}

DPTK_INLINE GradientNorm DeviceClipping::clip_norm_of_all(std::span<const Buffer> gradients, double max_norm,
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
    lanes_.make_user_stream_wait();
    return GradientNorm(norm);
}

}  // namespace DPTK_NAMESPACE::detail
