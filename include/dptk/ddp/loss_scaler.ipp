#pragma once

#include "dptk/ddp/loss_scaler.hpp"

#include <cmath>
#include <cstdint>

namespace DPTK_NAMESPACE {

DPTK_INLINE LossScaler::LossScaler(LossScalerOptions options)
    : options_(options), scale_(options.init_scale) {
    const bool good = options.init_scale > 0 && std::isfinite(options.init_scale) &&
                      options.growth_factor > 1 && options.backoff_factor > 0 && options.backoff_factor < 1 &&
                      options.growth_interval > 0;
    if (!good)
        throw ArgumentError(detail::text(
            "LossScaler: expected a finite init_scale above 0, growth_factor above 1, backoff_factor in "
            "(0, 1) and growth_interval above 0, got ",
            options.init_scale, ", ", options.growth_factor, ", ", options.backoff_factor, " and ",
            options.growth_interval));
}

DPTK_INLINE bool LossScaler::unscale(ProcessGroup& group, const std::vector<ParameterRef>& parameters) const {
    const bool finite = detail::unscale(detail::gradients_of(parameters), scale_);
    return group.all_reduce_value(static_cast<std::uint8_t>(finite ? 0 : 1), ReduceOp::max) == 0;
}

DPTK_INLINE void LossScaler::update(bool was_finite) {
    if (!was_finite) {
        scale_ *= options_.backoff_factor;
        good_steps_ = 0;
    } else if (++good_steps_ == options_.growth_interval) {
        scale_ *= options_.growth_factor;
        good_steps_ = 0;
    }
}

DPTK_INLINE void LossScaler::load_state(const State& state) noexcept {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
}

}  // namespace DPTK_NAMESPACE
