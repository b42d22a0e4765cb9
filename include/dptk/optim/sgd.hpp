/// Stochastic gradient descent with momentum and weight decay, by PyTorch's formula. It works on flat spans
/// and keeps its state by slot, so that it serves whole parameters as well as slices of them.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

struct SgdOptions {
    /// The learning rate.
    double lr;
    double momentum = 0;
    double weight_decay = 0;
};

/// `torch.optim.SGD` (dampening 0, no Nesterov):
/// g += weight_decay · p; buf = g at the first step, then momentum · buf + g; p -= lr · buf.
template <std::floating_point T>
class SGD {
  public:
    /// \throws ArgumentError where an option is negative or not finite
    explicit SGD(SgdOptions options) : options_(options) {
        require_not_negative("momentum", options.momentum);
        require_not_negative("weight_decay", options.weight_decay);
        set_lr(options.lr);
    }

    /// One step of the parameter in slot `slot`, usually its index. The slot's momentum starts at its first
    /// step. \param gradient is only read \throws ArgumentError where value and gradient differ in size, or
    /// the slot had another size before
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        if (value.size() != gradient.size())
            throw ArgumentError(detail::text("SGD: slot ", slot, " has ", value.size(), " values but ",
                                             gradient.size(), " gradient elements"));
        if (options_.momentum == 0) {
            descend(value, gradient);
            return;
        }
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        std::vector<T>& momentum = slots_[slot];
        if (momentum.empty()) {
            momentum.assign(value.size(), T{0});  // factor · 0 + g is PyTorch's first step, buf = g
        } else if (momentum.size() != value.size()) {
            throw ArgumentError(detail::text("SGD: slot ", slot, " had ", momentum.size(),
                                             " values before, and now has ", value.size()));
        }
        descend(value, gradient, momentum);
    }

    /// \throws ArgumentError where it is negative or not finite
    void set_lr(double lr) {
        require_not_negative("lr", lr);
        options_.lr = lr;
    }

    [[nodiscard]] double lr() const noexcept { return options_.lr; }

    /// The momentum of slot `slot`, for checkpoints; empty where it has taken no step with momentum.
    [[nodiscard]] std::span<const T> momentum(std::size_t slot) const noexcept {
        if (slot >= slots_.size()) return {};
        return slots_[slot];
    }

    /// Continues slot `slot` with the momentum that `momentum(slot)` gave; an empty one starts it anew.
    void set_momentum(std::size_t slot, std::span<const T> momentum) {
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        slots_[slot].assign(momentum.begin(), momentum.end());
    }

  private:
    static void require_not_negative(const char* option, double value) {
        if (!(value >= 0) || !std::isfinite(value))
            throw ArgumentError(
                detail::text("SGD: ", option, " must be finite and not negative, but is ", value));
    }

    void descend(std::span<T> value, std::span<const T> gradient) const {
        const T lr = static_cast<T>(options_.lr);
        const T decay = static_cast<T>(options_.weight_decay);
        for (std::size_t i = 0; i < value.size(); ++i) value[i] -= lr * (gradient[i] + decay * value[i]);
    }

    void descend(std::span<T> value, std::span<const T> gradient, std::span<T> momentum) const {
        const T lr = static_cast<T>(options_.lr);
        const T decay = static_cast<T>(options_.weight_decay);
        const T factor = static_cast<T>(options_.momentum);
        for (std::size_t i = 0; i < value.size(); ++i) {
            momentum[i] = factor * momentum[i] + (gradient[i] + decay * value[i]);
            value[i] -= lr * momentum[i];
        }
    }

    SgdOptions options_;
    /// The momentum of each slot; empty before its first step.
    std::vector<std::vector<T>> slots_;
};

}  // namespace dptk
