/// The optimizer concept and the state (momentum, moments) that dptk's optimizers keep. An optimizer
/// updates one flat span of a parameter at a time and keeps its state in a numbered slot, so that it can
/// process whole parameters as well as slices of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

/// The state of one slot, for checkpoints and for moving it to other ranks.
template <std::floating_point T>
struct OptimizerState {
    /// The number of steps that the slot has performed.
    std::int64_t steps = 0;
    /// Momentum or moments, each with as many values as the parameter. Empty before the slot's first step,
    /// and if the optimizer keeps no state.
    std::vector<std::vector<T>> arrays = {};
};

/// Settings of an optimizer for some of its slots, like a parameter group of PyTorch. A slot is the index of
/// a parameter among those that are stepped. The default changes nothing.
struct ParameterGroup {
    double lr_factor = 1;  ///< The factor of the optimizer's learning rate; not negative.
    /// Replaces the optimizer's weight_decay; not negative.
    std::optional<double> weight_decay = std::nullopt;
    /// Whether steps leave the slots as they are, without weight decay, and without keeping state for them.
    bool is_frozen = false;

    friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

/// Returns the indices of all parameters with at most one dimension: biases and the parameters of norms,
/// which usually have no weight decay.
[[nodiscard]] std::vector<std::size_t> parameters_without_decay(std::span<const ParameterRef> parameters);

/// An optimizer: `step(slot, value, gradient)` updates `value`; slots are numbered from 0.
template <class O>
concept Optimizer =
    requires(O& optimizer, const O& same, std::size_t slot, std::span<typename O::Scalar> value,
             std::span<const typename O::Scalar> gradient, OptimizerState<typename O::Scalar> state) {
        optimizer.step(slot, value, gradient);
        { same.state(slot) } -> std::convertible_to<OptimizerState<typename O::Scalar>>;
        optimizer.set_state(slot, std::move(state));
    };

namespace detail {

/// Throws ArgumentError if an option is negative or not finite.
void require_not_negative(std::string_view optimizer, std::string_view option, double value);

/// Finds the parameters that a step updates: those whose gradients exist, and only the first of several
/// parameters with the same value.
class SteppedParameters {
  public:
    /// Returns their indices, valid until the next call.
    [[nodiscard]] const std::vector<std::size_t>& find(std::span<const ParameterRef> parameters);

  private:
    std::vector<const void*> values_;  // by parameter, at the last call; null if it is not stepped
    std::vector<const void*> values_now_;
    std::vector<std::size_t> stepped_;
};

/// The states and groups of all slots of an optimizer.
template <std::floating_point T>
class OptimizerSlots {
  public:
    /// `name` is the optimizer's name in messages; each slot that is used has `arrays` arrays.
    OptimizerSlots(std::string_view name, std::size_t arrays) : name_(name), arrays_(arrays) {}

    /// Counts a step of the slot, and returns the slot's state, whose arrays are zeros in the first step.
    /// Throws ArgumentError if sizes do not match.
    [[nodiscard]] OptimizerState<T>& begin_step(std::size_t slot, std::size_t values, std::size_t gradients) {
        if (values != gradients)
            throw ArgumentError(text(name_, ": slot ", slot, " has ", values, " values but ", gradients,
                                     " gradient elements"));
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        OptimizerState<T>& state = slots_[slot];
        if (state.arrays.size() != arrays_) state.arrays.assign(arrays_, std::vector<T>(values, T{0}));
        for (const std::vector<T>& array : state.arrays) {
            if (array.size() != values)
                throw ArgumentError(text(name_, ": expected ", array.size(), " values in slot ", slot,
                                         ", as many as its state has, got ", values));
        }
        ++state.steps;
        return state;
    }

    [[nodiscard]] const OptimizerState<T>& get(std::size_t slot) const {
        return slot < slots_.size() ? slots_[slot] : unused_;
    }

    /// Throws ArgumentError for a state of another kind of optimizer.
    void set(std::size_t slot, OptimizerState<T> state) {
        if (!state.arrays.empty() && state.arrays.size() != arrays_)
            throw ArgumentError(text(name_, ": expected a state of ", arrays_, " arrays for slot ", slot,
                                     ", got ", state.arrays.size()));
        if (slot >= slots_.size()) slots_.resize(slot + 1);
        slots_[slot] = std::move(state);
    }

    [[nodiscard]] const ParameterGroup& group(std::size_t slot) const noexcept {
        return groups_[slot < group_of_.size() ? group_of_[slot] : 0];
    }

    /// Throws ArgumentError if a number is negative or not finite.
    void set_group(std::span<const std::size_t> slots, const ParameterGroup& group) {
        require_not_negative(name_, "lr_factor", group.lr_factor);
        require_not_negative(name_, "weight_decay", group.weight_decay.value_or(0));
        const auto same = detail::find(groups_, group);
        const auto number = static_cast<std::size_t>(same - groups_.begin());
        if (same == groups_.end()) groups_.push_back(group);
        for (const std::size_t slot : slots) {
            if (slot >= group_of_.size()) group_of_.resize(slot + 1);
            group_of_[slot] = number;
        }
    }

    SteppedParameters stepped;  ///< For step_parameters().
    std::vector<T> converted;   ///< For step_parameters(): a gradient.

  private:
    std::string_view name_;
    std::size_t arrays_;
    OptimizerState<T> unused_;  // for slots that have never stepped
    std::vector<OptimizerState<T>> slots_;
    std::vector<ParameterGroup> groups_{1};
    std::vector<std::size_t> group_of_;  // by slot; the first group if the slot is not there
};

/// Copies the gradient, converted to the type of `to`. Throws ArgumentError if it is not in host memory.
void convert_gradient(const ParameterRef& parameter, const Buffer& to);

/// Steps the parameters, each in the slot of its index. Gradients of another type than T are converted.
template <class O, class T>
void step_parameters(O& optimizer, OptimizerSlots<T>& slots, std::span<const ParameterRef> parameters) {
    for (const std::size_t i : slots.stepped.find(parameters)) {
        const ParameterRef& parameter = parameters[i];
        std::span<const T> gradient;
        if (parameter.gradient_buffer().dtype == dtype_of<T>) {
            gradient = parameter.gradients<T>();
        } else {
            slots.converted.resize(parameter.count);
            convert_gradient(parameter, {slots.converted.data(), parameter.count, dtype_of<T>, {}});
            gradient = slots.converted;
        }
        optimizer.step(i, parameter.values<T>(), gradient);
    }
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/optim/optimizer.ipp"
#endif
