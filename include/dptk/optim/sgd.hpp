/// Stochastic gradient descent (SGD) with momentum, Nesterov momentum and weight decay, by PyTorch's formula.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/renamed.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

/// Options of SGD, with PyTorch's names.
struct SGDOptions {
    /// The learning rate.
    double lr;
    /// The fraction of the previous step that is added to the next one. If 0, no state is kept.
    double momentum = 0;
    /// The factor of the L2 penalty: weight_decay times the value is added to the gradient.
    double weight_decay = 0;
    /// The fraction of a gradient that is not added to the momentum, from the second step on.
    double dampening = 0;
    /// Nesterov momentum; needs a momentum, and a dampening of 0.
    bool nesterov = false;
};

/// `torch.optim.SGD`: g += weight_decay · p; buf = g at the first step, then momentum · buf + (1 - dampening)
/// · g; p -= lr · buf, or with Nesterov momentum, p -= lr · (g + momentum · buf).
template <std::floating_point T>
class SGD {
  public:
    using Scalar = T;  ///< The element type of values, gradients and momentum.

    /// Throws ArgumentError if an option is negative or not finite, or if Nesterov momentum has no momentum
    /// or a dampening.
    explicit SGD(SGDOptions options) : options_(options), slots_("SGD", options.momentum == 0 ? 0 : 1) {
        detail::require_not_negative("SGD", "momentum", options.momentum);
        detail::require_not_negative("SGD", "weight_decay", options.weight_decay);
        detail::require_not_negative("SGD", "dampening", options.dampening);
        if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
            throw ArgumentError("SGD: nesterov needs a momentum above 0 and a dampening of 0");
        set_lr(options.lr);
    }

    /// Performs one step on all of these parameters, such as ddp.parameters(), each in the slot of its index.
    /// Values are of type T; gradients of another type are converted. A value that several parameters have is
    /// stepped once, and parameters whose lazy gradients do not exist are skipped. Throws ArgumentError for
    /// values of another type, and for parameters in device memory.
    void step(std::span<const ParameterRef> parameters) {
        detail::step_parameters(*this, slots_, parameters);
    }

    /// Performs one step on the parameter in slot `slot`, usually the parameter's index. Only reads
    /// `gradient`. The slot's momentum starts at its first step. Throws ArgumentError if value and gradient
    /// differ in size, or if the slot had another size before.
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        const ParameterGroup& group = slots_.group(slot);
        if (group.is_frozen) return;
        OptimizerState<T>& state = slots_.begin_step(slot, value.size(), gradient.size());
        const T lr = static_cast<T>(options_.lr * group.lr_factor);
        const T decay = static_cast<T>(group.weight_decay.value_or(options_.weight_decay));
        if (state.arrays.empty()) {
            for (std::size_t i = 0; i < value.size(); ++i) value[i] -= lr * (gradient[i] + decay * value[i]);
            return;
        }
        const T factor = static_cast<T>(options_.momentum);
        const T added = static_cast<T>(state.steps == 1 ? 1 : 1 - options_.dampening);
        const std::span<T> momentum = state.arrays[0];  // zeros at the first step
        for (std::size_t i = 0; i < value.size(); ++i) {
            const T g = gradient[i] + decay * value[i];
            momentum[i] = factor * momentum[i] + added * g;
            value[i] -= lr * (options_.nesterov ? g + factor * momentum[i] : momentum[i]);
        }
    }

    /// Sets how these slots are stepped from now on. Throws ArgumentError if a number is negative or not
    /// finite.
    void set_group(std::span<const std::size_t> slots, const ParameterGroup& group) {
        slots_.set_group(slots, group);
    }

    /// Sets the learning rate of subsequent steps. Throws ArgumentError if it is negative or not finite.
    void set_lr(double lr) {
        detail::require_not_negative("SGD", "lr", lr);
        options_.lr = lr;
    }

    /// Returns the learning rate of the next step.
    [[nodiscard]] double lr() const noexcept { return options_.lr; }

    /// Returns the momentum of a slot, for checkpoints. The state has no arrays if options.momentum is 0,
    /// or before the slot's first step. The reference is valid until the next step() or set_state().
    [[nodiscard]] const OptimizerState<T>& state(std::size_t slot) const { return slots_.get(slot); }

    /// Restores a state that state(slot) returned. Throws ArgumentError for a state of another kind of
    /// optimizer.
    void set_state(std::size_t slot, OptimizerState<T> state) { slots_.set(slot, std::move(state)); }

  private:
    SGDOptions options_;
    detail::OptimizerSlots<T> slots_;
};

// The former spelling, until version 0.3.
DPTK_RENAMED_TYPE(SgdOptions, SGDOptions);

}  // namespace DPTK_NAMESPACE
