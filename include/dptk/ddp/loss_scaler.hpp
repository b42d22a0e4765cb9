/// Dynamic loss scaling: the loss is multiplied so that small gradients survive in 16 bits, by as much as the
/// large ones allow. PyTorch's GradScaler, with one verdict for all ranks.
#pragma once

#include <concepts>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

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
    explicit LossScaler(LossScalerOptions options = {});

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
    [[nodiscard]] bool unscale(ProcessGroup& group, const std::vector<ParameterRef>& parameters) const;

    /// Behind each step: what unscale() has returned. Does not communicate.
    void update(bool was_finite);

    /// For checkpoints.
    struct State {
        double scale = 0;    ///< scale()
        int good_steps = 0;  ///< Steps without an overflow since the scale has changed.
    };
    /// What load_state() takes, on all ranks.
    [[nodiscard]] State state() const noexcept { return {scale_, good_steps_}; }
    /// Goes on from what state() gave.
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
