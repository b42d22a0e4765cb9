/// Adam and AdamW, by PyTorch's formulas (Kingma and Ba 2015; Loshchilov and Hutter 2019).
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

/// Under PyTorch's names, with its defaults for Adam.
struct AdamOptions {
    /// The learning rate; not negative.
    double lr = 1e-3;
    double beta1 = 0.9;    ///< How much stays of the mean of the gradients; from 0 on, below 1.
    double beta2 = 0.999;  ///< The same of the mean of their squares.
    double eps = 1e-8;     ///< Added to the divisor; not negative.
    /// Of Adam's L2 penalty, or of AdamW's decay; not negative.
    double weight_decay = 0;
};

/// Where weight decay goes: into the gradient, or straight to the values.
enum class WeightDecay {
    in_gradient,  ///< Adam's L2 penalty.
    of_values     ///< AdamW's.
};

/// What Adam and AdamW share: m = β₁ m + (1 - β₁) g; v = β₂ v + (1 - β₂) g²;
/// p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps), in step t of the slot.
template <std::floating_point T, WeightDecay decay>
class AdamBase {
  public:
    using Scalar = T;  ///< The element type of values, gradients and moments.

    /// One step of the parameter in slot `slot`, usually its index. The slot's moments start as zeros at its
    /// first step. \param gradient is only read \throws ArgumentError where value and gradient differ in
    /// size, or the slot had another size before
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        OptimizerState<T>& state = slots_.begin_step(slot, value.size(), gradient.size());
        const auto t = static_cast<double>(state.steps);
        const T step_size = static_cast<T>(options_.lr / (1 - std::pow(options_.beta1, t)));
        const T root = static_cast<T>(std::sqrt(1 - std::pow(options_.beta2, t)));
        const T beta1 = static_cast<T>(options_.beta1);
        const T beta2 = static_cast<T>(options_.beta2);
        const T rest1 = static_cast<T>(1 - options_.beta1);
        const T rest2 = static_cast<T>(1 - options_.beta2);
        const T eps = static_cast<T>(options_.eps);
        const T penalty = decay == WeightDecay::in_gradient ? static_cast<T>(options_.weight_decay) : T{0};
        const T shrink =
            decay == WeightDecay::of_values ? static_cast<T>(1 - options_.lr * options_.weight_decay) : T{1};
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

    /// Sets the learning rate of the steps that follow.
    /// \throws ArgumentError where it is negative or not finite
    void set_lr(double lr) {
        detail::require_not_negative(name_, "lr", lr);
        options_.lr = lr;
    }

    /// The learning rate of the next step.
    [[nodiscard]] double lr() const noexcept { return options_.lr; }

    /// Both moments of a slot, m and then v, for checkpoints; no arrays before its first step.
    [[nodiscard]] OptimizerState<T> state(std::size_t slot) const { return slots_.get(slot); }

    /// Goes on with what state(slot) gave. \throws ArgumentError for a state of another optimizer's
    void set_state(std::size_t slot, OptimizerState<T> state) { slots_.set(slot, std::move(state)); }

  protected:
    /// \param name in errors \throws ArgumentError where an option is out of its range
    AdamBase(std::string_view name, AdamOptions options) : name_(name), options_(options), slots_(name, 2) {
        detail::require_not_negative(name, "eps", options.eps);
        detail::require_not_negative(name, "weight_decay", options.weight_decay);
        for (const double beta : {options.beta1, options.beta2}) {
            if (!(beta >= 0 && beta < 1))
                throw ArgumentError(detail::text(name, ": betas must be in [0, 1), but one is ", beta));
        }
        set_lr(options.lr);
    }

  private:
    std::string_view name_;
    AdamOptions options_;
    detail::OptimizerSlots<T> slots_;
};

/// `torch.optim.Adam` (no amsgrad), with its L2 penalty: g += weight_decay · p; m = β₁ m + (1 - β₁) g;
/// v = β₂ v + (1 - β₂) g²; p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps), in step t of the slot.
template <std::floating_point T>
class Adam : public AdamBase<T, WeightDecay::in_gradient> {
  public:
    /// \throws ArgumentError where an option is out of its range
    explicit Adam(AdamOptions options = {}) : AdamBase<T, WeightDecay::in_gradient>("Adam", options) {}
};

/// `torch.optim.AdamW`: p -= lr · weight_decay · p before the step, which is Adam's without the penalty.
/// Made without options it has PyTorch's weight_decay, 0.01; options that are given have 0 unless they say
/// otherwise.
template <std::floating_point T>
class AdamW : public AdamBase<T, WeightDecay::of_values> {
  public:
    /// \throws ArgumentError where an option is out of its range
    explicit AdamW(AdamOptions options = {.weight_decay = 0.01})
        : AdamBase<T, WeightDecay::of_values>("AdamW", options) {}
};

}  // namespace DPTK_NAMESPACE
