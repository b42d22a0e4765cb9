/// Stochastic gradient descent with momentum and weight decay, by PyTorch's formula.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

/// Under PyTorch's names.
struct SgdOptions {
    /// The learning rate.
    double lr;
    /// How much of the last step goes into the next one; 0: nothing, and no state is kept.
    double momentum = 0;
    /// The L2 penalty: how much of the values is added to their gradients.
    double weight_decay = 0;
};

/// `torch.optim.SGD` (dampening 0, no Nesterov):
/// g += weight_decay · p; buf = g at the first step, then momentum · buf + g; p -= lr · buf.
template <std::floating_point T>
class SGD {
  public:
    using Scalar = T;  ///< The element type of values, gradients and momentum.

    /// \throws ArgumentError where an option is negative or not finite
    explicit SGD(SgdOptions options) : options_(options), slots_("SGD", options.momentum == 0 ? 0 : 1) {
        detail::require_not_negative("SGD", "momentum", options.momentum);
        detail::require_not_negative("SGD", "weight_decay", options.weight_decay);
        set_lr(options.lr);
    }

    /// One step of the parameter in slot `slot`, usually its index. The slot's momentum starts at its first
    /// step. \param gradient is only read \throws ArgumentError where value and gradient differ in size, or
    /// the slot had another size before
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        OptimizerState<T>& state = slots_.begin_step(slot, value.size(), gradient.size());
        const T lr = static_cast<T>(options_.lr);
        const T decay = static_cast<T>(options_.weight_decay);
        if (state.arrays.empty()) {
            for (std::size_t i = 0; i < value.size(); ++i) value[i] -= lr * (gradient[i] + decay * value[i]);
            return;
        }
        const T factor = static_cast<T>(options_.momentum);
        const std::span<T> momentum = state.arrays[0];  // factor · 0 + g is PyTorch's first step, buf = g
        for (std::size_t i = 0; i < value.size(); ++i) {
            momentum[i] = factor * momentum[i] + (gradient[i] + decay * value[i]);
            value[i] -= lr * momentum[i];
        }
    }

    /// Sets the learning rate of the steps that follow.
    /// \throws ArgumentError where it is negative or not finite
    void set_lr(double lr) {
        detail::require_not_negative("SGD", "lr", lr);
        options_.lr = lr;
    }

    /// The learning rate of the next step.
    [[nodiscard]] double lr() const noexcept { return options_.lr; }

    /// The momentum of a slot, for checkpoints; no arrays where there is none.
    [[nodiscard]] OptimizerState<T> state(std::size_t slot) const { return slots_.get(slot); }

    /// Goes on with what state(slot) gave. \throws ArgumentError for a state of another optimizer's
    void set_state(std::size_t slot, OptimizerState<T> state) { slots_.set(slot, std::move(state)); }

  private:
    SgdOptions options_;
    detail::OptimizerSlots<T> slots_;
};

}  // namespace DPTK_NAMESPACE
