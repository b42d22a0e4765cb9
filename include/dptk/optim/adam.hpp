/// The optimizers Adam and AdamW, by PyTorch's formulas (Kingma and Ba 2015; Loshchilov and Hutter 2019).
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

/// Options of Adam and AdamW, with PyTorch's names and its defaults for Adam.
struct AdamOptions {
    /// The learning rate; not negative.
    double lr = 1e-3;
    double beta1 = 0.9;    ///< The decay of the running mean of gradients; in [0, 1).
    double beta2 = 0.999;  ///< The decay of the running mean of squared gradients; in [0, 1).
    double eps = 1e-8;     ///< Added to the divisor; not negative.
    /// The factor of Adam's L2 penalty or of AdamW's weight decay; not negative.
    double weight_decay = 0;
};

/// Whether weight decay is added to the gradient or applied to the values directly.
enum class WeightDecay {
    in_gradient,  ///< Adam's L2 penalty.
    of_values     ///< AdamW's decoupled weight decay.
};

/// The common part of Adam and AdamW. In step t of a slot:
/// m = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²; p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps).
template <std::floating_point T, WeightDecay decay>
class AdamBase {
  public:
    using Scalar = T;  ///< The element type of values, gradients and moments.

    /// Performs one step on all of these parameters, such as ddp.parameters(), each in the slot of its index.
    /// Values are of type T; gradients of another type are converted. A value that several parameters have is
    /// stepped once, and parameters whose lazy gradients do not exist are skipped. Throws ArgumentError for
    /// values of another type, and for parameters in device memory.
    void step(std::span<const ParameterRef> parameters) {
        detail::step_parameters(*this, slots_, parameters);
    }

    /// Performs one step on the parameter in slot `slot`, usually the parameter's index. Only reads
    /// `gradient`. The slot's moments are zeros before its first step. Throws ArgumentError if value and
    /// gradient differ in size, or if the slot had another size before.
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        const ParameterGroup& group = slots_.group(slot);
        if (group.is_frozen) return;
        OptimizerState<T>& state = slots_.begin_step(slot, value.size(), gradient.size());
        const auto t = static_cast<double>(state.steps);
        const double lr = options_.lr * group.lr_factor;
        const double weight_decay = group.weight_decay.value_or(options_.weight_decay);
        const T step_size = static_cast<T>(lr / (1 - std::pow(options_.beta1, t)));
        const T root = static_cast<T>(std::sqrt(1 - std::pow(options_.beta2, t)));
        const T beta1 = static_cast<T>(options_.beta1);
        const T beta2 = static_cast<T>(options_.beta2);
        const T rest1 = static_cast<T>(1 - options_.beta1);
        const T rest2 = static_cast<T>(1 - options_.beta2);
        const T eps = static_cast<T>(options_.eps);
        const T penalty = decay == WeightDecay::in_gradient ? static_cast<T>(weight_decay) : T{0};
        const T shrink = decay == WeightDecay::of_values ? static_cast<T>(1 - lr * weight_decay) : T{1};
        const std::span<T> first = state.arrays[0];
        const std::span<T> second = state.arrays[1];
        for (std::size_t i = 0; i < value.size(); ++i) {
            const T g = gradient[i] + penalty * value[i];
            value[i] *= shrink;
            first[i] = beta1 * first[i] + rest1 * g;
            second[i] = beta2 * second[i] + rest2 * g * g;
            value[i] -= step_size * first[i] / (std::sqrt(second[i]) / root + eps);
        }
    }

    /// Sets how these slots are stepped from now on. Throws ArgumentError if a number is negative or not
    /// finite.
    void set_group(std::span<const std::size_t> slots, const ParameterGroup& group) {
        slots_.set_group(slots, group);
    }

    /// Sets the learning rate of subsequent steps. Throws ArgumentError if it is negative or not finite.
    void set_lr(double lr) {
        detail::require_not_negative(name_, "lr", lr);
        options_.lr = lr;
    }

    /// Returns the learning rate of the next step.
    [[nodiscard]] double lr() const noexcept { return options_.lr; }

    /// Returns both moments of a slot, m and then v, for checkpoints. The state has no arrays before the
    /// slot's first step. The reference is valid until the next step() or set_state().
    [[nodiscard]] const OptimizerState<T>& state(std::size_t slot) const { return slots_.get(slot); }

    /// Restores a state that state(slot) returned. Throws ArgumentError for a state of another kind of
    /// optimizer.
    void set_state(std::size_t slot, OptimizerState<T> state) { slots_.set(slot, std::move(state)); }

  protected:
    /// `name` appears in error messages. Throws ArgumentError if an option is out of range.
    AdamBase(std::string_view name, AdamOptions options) : name_(name), options_(options), slots_(name, 2) {
        detail::require_not_negative(name, "eps", options.eps);
        detail::require_not_negative(name, "weight_decay", options.weight_decay);
        for (const double beta : {options.beta1, options.beta2}) {
            if (!(beta >= 0 && beta < 1))
                throw ArgumentError(
                    detail::text(name, ": invalid beta ", beta, ": expected beta1 and beta2 in [0, 1)"));
        }
        set_lr(options.lr);
    }

  private:
    std::string_view name_;
    AdamOptions options_;
    detail::OptimizerSlots<T> slots_;
};

/// `torch.optim.Adam` (without amsgrad), with its L2 penalty. In step t of a slot: g += weight_decay · p; m
/// = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²; p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps).
template <std::floating_point T>
class Adam : public AdamBase<T, WeightDecay::in_gradient> {
  public:
    /// Throws ArgumentError if an option is out of range.
    explicit Adam(AdamOptions options = {}) : AdamBase<T, WeightDecay::in_gradient>("Adam", options) {}
};

/// `torch.optim.AdamW`: p -= lr · weight_decay · p, then Adam's step without the penalty. The default
/// options have PyTorch's weight_decay of 0.01; an AdamOptions that the caller constructs has a
/// weight_decay of 0 unless the caller sets another.
template <std::floating_point T>
class AdamW : public AdamBase<T, WeightDecay::of_values> {
  public:
    /// Throws ArgumentError if an option is out of range.
    explicit AdamW(AdamOptions options = {.weight_decay = 0.01})
        : AdamBase<T, WeightDecay::of_values>("AdamW", options) {}
};

}  // namespace DPTK_NAMESPACE
