/// Dynamic loss scaling: the loss is multiplied so that small gradients survive in 16 bits, by as much as the
/// large ones allow. PyTorch's GradScaler, with one verdict for all ranks.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk {

/// Under PyTorch's names, with its defaults. Equal on all ranks.
struct LossScalerOptions {
    double init_scale = 65536;    ///< Of the first step.
    double growth_factor = 2;     ///< What the scale is multiplied with when it grows.
    double backoff_factor = 0.5;  ///< The same after an overflow.
    /// Steps without an overflow after which the scale grows.
    int growth_interval = 2000;
};

/// In each step: the loss is multiplied by scale(); behind synchronize(), unscale(); where that returns
/// false, the optimizer's step is left out; update().
class LossScaler {
  public:
    /// Throws ArgumentError for options that make no sense.
    explicit LossScaler(LossScalerOptions options = {}) : options_(options), scale_(options.init_scale) {
        const bool good = options.init_scale > 0 && std::isfinite(options.init_scale) &&
                          options.growth_factor > 1 && options.backoff_factor > 0 &&
                          options.backoff_factor < 1 && options.growth_interval > 0;
        if (!good)
            throw ArgumentError(
                "LossScaler: init_scale must be positive, growth_factor above 1, backoff_factor in (0, 1), "
                "and "
                "growth_interval positive");
    }

    /// What the next loss is multiplied with.
    [[nodiscard]] double scale() const noexcept { return scale_; }

    /// Divides the averages of a DistributedDataParallel or a ShardedOptimizer by the scale, wherever they
    /// are. Returns whether all are finite, on all ranks: the same on all of them. Collective, blocks.
    template <class Trainee>
        requires requires(Trainee& trainee) {
            { trainee.unscale(1.0) } -> std::same_as<bool>;
        }
    [[nodiscard]] bool unscale(Trainee& trainee) const {
        return trainee.unscale(scale_);
    }

    /// The same of gradients in host memory.
    [[nodiscard]] bool unscale(ProcessGroup& group, const std::vector<ParameterRef>& parameters) const {
        const bool finite = detail::unscale(parameters, scale_);
        return group.all_reduce_value(static_cast<std::uint8_t>(finite ? 0 : 1), ReduceOp::max) == 0;
    }

    /// Behind each step: what unscale() has returned. Does not communicate.
    void update(bool was_finite) {
        if (!was_finite) {
            scale_ *= options_.backoff_factor;
            good_steps_ = 0;
        } else if (++good_steps_ == options_.growth_interval) {
            scale_ *= options_.growth_factor;
            good_steps_ = 0;
        }
    }

    /// For checkpoints.
    struct State {
        double scale = 0;    ///< scale()
        int good_steps = 0;  ///< Steps without an overflow since the scale has changed.
    };
    /// What load_state() takes, on all ranks.
    [[nodiscard]] State state() const noexcept { return {scale_, good_steps_}; }
    /// Goes on from what state() gave.
    void load_state(const State& state) noexcept {
        scale_ = state.scale;
        good_steps_ = state.good_steps;
    }

  private:
    LossScalerOptions options_;
    double scale_;
    int good_steps_ = 0;
};

}  // namespace dptk
