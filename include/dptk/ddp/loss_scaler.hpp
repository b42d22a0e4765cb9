/// Dynamic loss scaling for 16-bit gradients, like PyTorch's GradScaler. The loss is multiplied by a scale
/// so that small gradients do not underflow; the scale grows until large gradients overflow. All ranks use
/// the same scale.
#pragma once

#include <concepts>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/clip.hpp"

namespace DPTK_NAMESPACE {

/// Options of LossScaler, with PyTorch's names and defaults. They must be equal on all ranks.
struct LossScalerOptions {
    double init_scale = 65536;    ///< The scale of the first step.
    double growth_factor = 2;     ///< The factor by which the scale grows.
    double backoff_factor = 0.5;  ///< The factor that is applied after an overflow.
    /// The number of steps without an overflow after which the scale grows.
    int growth_interval = 2000;
};

/// Scales losses, and adapts the scale. In each step, multiply the loss by scale(), call unscale() after
/// synchronize(), skip the optimizer's step if unscale() returned false, and call update().
class LossScaler {
  public:
    /// Throws ArgumentError if an option is out of range.
    explicit LossScaler(LossScalerOptions options = {});

    /// Returns the factor for the next loss.
    [[nodiscard]] double scale() const noexcept { return scale_; }

    /// Divides the averages of a DistributedDataParallel or a ShardedOptimizer by the scale, in host or
    /// device memory. Returns whether all averages are finite, with the same result on all ranks.
    /// Collective, blocks.
    template <class Trainee>
        requires requires(Trainee& trainee) {
            { trainee.unscale(1.0) } -> std::same_as<bool>;
        }
    [[nodiscard]] bool unscale(Trainee& trainee) const {
        return trainee.unscale(scale_);
    }

    /// Divides gradients in host memory by the scale. Returns whether all are finite on all ranks.
    /// Collective, blocks.
    [[nodiscard]] bool unscale(ProcessGroup& group, const std::vector<ParameterRef>& parameters) const;

    /// Adapts the scale after each step; `was_finite` is the result of unscale(). Does not communicate.
    void update(bool was_finite);

    /// The state of the scaler, for checkpoints.
    struct State {
        double scale = 0;    ///< The current scale.
        int good_steps = 0;  ///< Steps without an overflow since the scale last changed.
    };
    /// Returns the state for load_state(). It is equal on all ranks.
    [[nodiscard]] State state() const noexcept { return {scale_, good_steps_}; }
    /// Restores a state that state() returned. Call it on all ranks.
    void load_state(const State& state) noexcept;

  private:
    LossScalerOptions options_;
    double scale_;
    int good_steps_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/loss_scaler.ipp"
#endif
