/// What dptk's optimizers have in common: they step one flat span of a parameter at a time, and keep what
/// they remember of it in a numbered slot, so that they serve whole parameters as well as slices of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// What an optimizer remembers of one slot, for checkpoints and for moving it to other ranks.
template <std::floating_point T>
struct OptimizerState {
    /// Steps that the slot has taken.
    std::int64_t steps = 0;
    /// As many values in each as the slot has: momentum, second moments. None before its first step, and
    /// where the optimizer remembers nothing.
    std::vector<std::vector<T>> arrays = {};
};

/// `step(slot, value, gradient)` changes `value`; slots are numbers from 0 on.
template <class O>
concept Optimizer =
    requires(O& optimizer, const O& same, std::size_t slot, std::span<typename O::Scalar> value,
             std::span<const typename O::Scalar> gradient, OptimizerState<typename O::Scalar> state) {
        optimizer.step(slot, value, gradient);
        { same.state(slot) } -> std::convertible_to<OptimizerState<typename O::Scalar>>;
        optimizer.set_state(slot, std::move(state));
    };

namespace detail {

/// The states of an optimizer's slots.
template <std::floating_point T>
class OptimizerSlots {
  public:
    /// `name` is the optimizer's, for messages; each slot that is used has so many arrays.
    OptimizerSlots(std::string_view name, std::size_t arrays) : name_(name), arrays_(arrays) {}

    /// The slot of a step, with arrays of zeros at its first. Throws ArgumentError where sizes do not match.
    [[nodiscard]] OptimizerState<T>& begin_step(std::size_t slot, std::size_t values, std::size_t gradients) {
        if (values != gradients)
            throw ArgumentError(text(name_, ": slot ", slot, " has ", values, " values but ", gradients,
                                     " gradient elements"));
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        OptimizerState<T>& state = slots_[slot];
        if (state.arrays.empty()) state.arrays.assign(arrays_, std::vector<T>(values, T{0}));
        for (const std::vector<T>& array : state.arrays) {
            if (array.size() != values)
                throw ArgumentError(text(name_, ": slot ", slot, " had ", array.size(),
                                         " values before, and now has ", values));
        }
        ++state.steps;
        return state;
    }

    [[nodiscard]] OptimizerState<T> get(std::size_t slot) const {
        return slot < slots_.size() ? slots_[slot] : OptimizerState<T>();
    }

    /// Throws ArgumentError for a state of another optimizer's.
    void set(std::size_t slot, OptimizerState<T> state) {
        if (!state.arrays.empty() && state.arrays.size() != arrays_)
            throw ArgumentError(text(name_, ": a state of ", state.arrays.size(), " arrays for slot ", slot,
                                     ", which has ", arrays_));
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        slots_[slot] = std::move(state);
    }

  private:
    std::string_view name_;
    std::size_t arrays_;
    std::vector<OptimizerState<T>> slots_;
};

/// Throws ArgumentError where an option is negative or not finite.
void require_not_negative(std::string_view optimizer, std::string_view option, double value);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/optim/optimizer.ipp"
#endif
