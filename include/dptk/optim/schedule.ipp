#pragma once

#include "dptk/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

DPTK_INLINE void require_positive(std::string_view schedule, std::string_view option, double value) {
    if (!(value > 0) || !std::isfinite(value))
        throw ArgumentError(text(schedule, ": ", option, " must be finite and above 0, but is ", value));
}

DPTK_INLINE double with_warmup(double factor, double x, double step, double warmup) noexcept {
    return x + step < warmup ? factor * (x + step) / warmup : factor;
}

}  // namespace detail

DPTK_INLINE ConstantSchedule::ConstantSchedule(ConstantScheduleOptions options) : options_(options) {
    detail::require_not_negative("ConstantSchedule", "warmup", options.warmup);
}

DPTK_INLINE double ConstantSchedule::operator()(double x, double step) const noexcept {
    return detail::with_warmup(1, x, step, options_.warmup);
}

DPTK_INLINE MultiStepSchedule::MultiStepSchedule(MultiStepScheduleOptions options)
    : options_(std::move(options)) {
    detail::require_not_negative("MultiStepSchedule", "gamma", options_.gamma);
    detail::require_not_negative("MultiStepSchedule", "warmup", options_.warmup);
    if (!std::is_sorted(options_.milestones.begin(), options_.milestones.end()))
        throw ArgumentError("MultiStepSchedule: expected milestones in ascending order");
}

DPTK_INLINE double MultiStepSchedule::operator()(double x, double step) const noexcept {
    double factor = 1;
    for (const double milestone : options_.milestones) {
        if (x >= milestone) factor *= options_.gamma;
    }
    return detail::with_warmup(factor, x, step, options_.warmup);
}

DPTK_INLINE CosineSchedule::CosineSchedule(CosineScheduleOptions options) : options_(options) {
    detail::require_positive("CosineSchedule", "total", options.total);
    detail::require_not_negative("CosineSchedule", "final_factor", options.final_factor);
    detail::require_not_negative("CosineSchedule", "warmup", options.warmup);
}

DPTK_INLINE double CosineSchedule::operator()(double x, double step) const noexcept {
    const double done = std::min(x / options_.total, 1.0);
    const double wave = (1 + std::cos(std::numbers::pi * done)) / 2;
    return detail::with_warmup(wave * (1 - options_.final_factor) + options_.final_factor, x, step,
                               options_.warmup);
}

DPTK_INLINE LinearSchedule::LinearSchedule(LinearScheduleOptions options) : options_(options) {
    detail::require_positive("LinearSchedule", "total", options.total);
    detail::require_not_negative("LinearSchedule", "first_factor", options.first_factor);
    detail::require_not_negative("LinearSchedule", "final_factor", options.final_factor);
    detail::require_not_negative("LinearSchedule", "warmup", options.warmup);
}

DPTK_INLINE double LinearSchedule::operator()(double x, double step) const noexcept {
    const double done = std::min(x / options_.total, 1.0);
    const double factor = options_.first_factor + (options_.final_factor - options_.first_factor) * done;
    return detail::with_warmup(factor, x, step, options_.warmup);
}

}  // namespace DPTK_NAMESPACE
