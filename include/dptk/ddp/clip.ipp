#pragma once

#include "dptk/ddp/clip.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "dptk/ddp/detail/tied_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE double clip_factor(double norm, double max_norm) noexcept {
    if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
    return std::min(max_norm / (norm + 1e-6), 1.0);
}

DPTK_INLINE std::vector<Buffer> gradients_of(const std::vector<ParameterRef>& parameters) {
    require_host_memory(parameters, "clipping and scaling");
    const TiedParameters tied(parameters);
    std::vector<Buffer> gradients;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (!tied.is_repeated(i)) gradients.push_back(parameters[i].gradient_buffer());
    return gradients;
}

DPTK_INLINE double clip_norm(std::span<const Buffer> gradients, double max_norm, double norm_type) {
    check_norm_type(norm_type);
    double sum = 0;
    for_each_element(gradients, [&](double element, auto&&) {
        const double size = std::abs(element);
        if (std::isinf(norm_type)) {
            sum = larger(sum, size);
        } else {
            sum += norm_type == 2 ? size * size : std::pow(size, norm_type);
        }
    });
    const double norm = std::isinf(norm_type) ? sum : std::pow(sum, 1 / norm_type);
    const double factor = clip_factor(norm, max_norm);
    if (factor != 1)
        for_each_element(gradients, [&](double element, auto&& store) { store(element * factor); });
    return norm;
}

DPTK_INLINE void clip_value(std::span<const Buffer> gradients, double limit) {
    for_each_element(gradients, [&](double element, auto&& store) {
        if (std::abs(element) > limit) store(std::clamp(element, -limit, limit));
    });
}

DPTK_INLINE bool unscale(std::span<const Buffer> gradients, double scale) {
    bool finite = true;
    for_each_element(gradients, [&](double element, auto&& store) {
        store(element / scale);
        finite = finite && std::isfinite(element);
    });
    return finite;
}

DPTK_INLINE double larger(double a, double b) noexcept {
    return b > a || std::isnan(b) ? b : a;
}

DPTK_INLINE void check_norm_type(double norm_type) {
    if (!(norm_type >= 1))
        throw ArgumentError(
            text("clip_grad_norm: invalid norm_type ", norm_type, ": expected a number of at least 1"));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE GradientNorm::GradientNorm(std::shared_ptr<detail::DeviceLane> lane, detail::OwnedBuffer norm)
    : lane_(std::move(lane)), on_device_(std::move(norm)) {}

DPTK_INLINE double GradientNorm::value() const {
    if (!lane_) return norm_;
    if (lane_->is_captured())
        throw ArgumentError(
            "GradientNorm::value() cannot be called while a step is captured into a CUDA graph");
    double norm = 0;
    lane_->wait_for_user_stream();
    lane_->read(on_device_.elements.slice(0, 1), &norm);
    return norm;
}

DPTK_INLINE double clip_grad_norm(const std::vector<ParameterRef>& parameters, double max_norm,
                                  double norm_type) {
    return detail::clip_norm(detail::gradients_of(parameters), max_norm, norm_type);
}

DPTK_INLINE void clip_grad_value(const std::vector<ParameterRef>& parameters, double limit) {
    detail::clip_value(detail::gradients_of(parameters), limit);
}

}  // namespace DPTK_NAMESPACE
