/// OptimizerChoice, the optimizer that a Trainer's options select, in host memory (HostOptimizer) or on a
/// GPU.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/optim/adam.hpp"
#include "dptk/optim/optimizer.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

template <class S, class SGDType, class AdamType, class AdamWType>
class OptimizerChoice {
  public:
    using Scalar = S;

    /// `arguments` follow the optimizer's options.
    template <class... Arguments>
    explicit OptimizerChoice(const TrainerOptions& options, const Arguments&... arguments)
        : optimizer_(make(options, arguments...)) {}

    void step(std::span<const ParameterRef> parameters) {
        std::visit([&](auto& optimizer) { optimizer.step(parameters); }, optimizer_);
    }

    /// Steps one slot of an optimizer in host memory.
    void step(std::size_t slot, std::span<Scalar> value, std::span<const Scalar> gradient) {
        std::visit([&](auto& optimizer) { optimizer.step(slot, value, gradient); }, optimizer_);
    }

    [[nodiscard]] double lr() const {
        return std::visit([](const auto& optimizer) { return optimizer.lr(); }, optimizer_);
    }

    void set_lr(double lr) {
        std::visit([&](auto& optimizer) { optimizer.set_lr(lr); }, optimizer_);
    }

    /// Does nothing if the optimizer has no groups, as on GPUs: TrainerComputation::problem() refuses them.
    void set_group(std::span<const std::size_t> slots, const ParameterGroup& group) {
        const auto set = [&](auto& optimizer) {
            if constexpr (requires { optimizer.set_group(slots, group); }) optimizer.set_group(slots, group);
        };
        std::visit(set, optimizer_);
    }

    /// Returns the state of a slot, on hosts a reference to it.
    [[nodiscard]] decltype(auto) state(std::size_t slot) {
        return std::visit([&](auto& optimizer) -> decltype(auto) { return optimizer.state(slot); },
                          optimizer_);
    }

    /// Returns the state of a slot of an optimizer in host memory.
    [[nodiscard]] const OptimizerState<Scalar>& state(std::size_t slot) const {
        return std::visit(
            [&](const auto& optimizer) -> const OptimizerState<Scalar>& { return optimizer.state(slot); },
            optimizer_);
    }

    void set_state(std::size_t slot, OptimizerState<Scalar> state) {
        std::visit([&](auto& optimizer) { optimizer.set_state(slot, std::move(state)); }, optimizer_);
    }

  private:
    using Choice = std::variant<SGDType, AdamType, AdamWType>;

    template <class... Arguments>
    [[nodiscard]] static Choice make(const TrainerOptions& options, const Arguments&... arguments) {
        switch (options.optimizer) {
            case OptimizerKind::adam: return Choice(std::in_place_index<1>, options.adam, arguments...);
            case OptimizerKind::adamw: return Choice(std::in_place_index<2>, options.adam, arguments...);
            case OptimizerKind::sgd: break;
        }
        return Choice(std::in_place_index<0>, options.sgd, arguments...);
    }

    Choice optimizer_;
};

template <class Scalar>
using HostOptimizer = OptimizerChoice<Scalar, SGD<Scalar>, Adam<Scalar>, AdamW<Scalar>>;

}  // namespace DPTK_NAMESPACE::detail
