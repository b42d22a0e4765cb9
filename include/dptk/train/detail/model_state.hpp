/// The state of a model and its optimizer in checkpoints: row-major, whatever the backend's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/ddp/sharded_optimizer.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/optim/optimizer.hpp"
#include "dptk/train/detail/optimizer_choice.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE::detail {

/// The state of the model and the optimizer of a TrainerComputation.
template <class Computation>
class ModelState {
  public:
    using Scalar = typename Computation::Scalar;

    using Sharded = ShardedOptimizer<HostOptimizer<Scalar>>;

    /// `sharded` is the optimizer if each rank has a part of its state, or null. `saves_parts` says that no
    /// rank is given the whole state.
    ModelState(Computation& computation, std::span<const ParameterRef> parameters, Sharded* sharded,
               bool saves_parts)
        : computation_(computation), parameters_(parameters), sharded_(sharded), saves_parts_(saves_parts) {}

    /// See TrainingRun::to_row_major().
    [[nodiscard]] StateTensor to_row_major(std::size_t i, std::string name, const void* elements) {
        const std::size_t count = element_count(parameters_[i].shape);
        StateTensor tensor{std::move(name), parameters_[i].shape, dtype_of<Scalar>, {}};
        tensor.bytes.resize(count * sizeof(Scalar));
        computation_.model().to_row_major(i, computation_.elements(parameters_[i], elements),
                                          {reinterpret_cast<Scalar*>(tensor.bytes.data()), count});
        return tensor;
    }

    /// See TrainingRun::from_row_major().
    void from_row_major(std::size_t i, const StateTensor& tensor, void* elements) {
        if (tensor.shape != parameters_[i].shape)
            throw ArgumentError(text("checkpoint: tensor ", tensor.name, " has the shape ",
                                     shape_text(tensor.shape), ", expected ",
                                     shape_text(parameters_[i].shape)));
        computation_.model().from_row_major(i, tensor.template values<Scalar>(),
                                            computation_.elements(parameters_[i], elements));
    }

    /// Adds parameters, buffers and the optimizer's arrays. Collective if each rank has a part of its state.
    void save(TrainingState& state) {
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            state.model.push_back(to_row_major(i, parameters_[i].name, parameters_[i].value));
        const std::vector<std::int64_t> steps =
            saves_parts_ ? save_sharded_optimizer(state) : save_optimizer(state);
        state.training.push_back(StateTensor::of<std::int64_t>("optimizer.steps", {steps.size()}, steps));
        auto& model = computation_.model();
        model.for_each_buffer([&](const nn::NamedBuffer& buffer) {
            StateTensor tensor{buffer.name, buffer.shape, buffer.data.dtype, {}};
            tensor.bytes.resize(buffer.data.bytes());
            model.fetch_buffer(buffer.data, tensor.bytes.data());
            state.model.push_back(std::move(tensor));
        });
    }

    /// Continues from what save() has added, except for sharded tensors. Does not communicate.
    void restore(const TrainingState& state) {
        const std::vector<std::int64_t> steps = steps_in(state);
        if (steps.size() != parameters_.size())
            throw ArgumentError(text("checkpoint: it has ", steps.size(), " parameters, the model ",
                                     parameters_.size(),
                                     ": continue with the model of that run, or use another folder"));
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            from_row_major(i, TrainingState::required(state.model, parameters_[i].name),
                           parameters_[i].value);
            OptimizerState<Scalar> slot{.steps = steps[i]};
            while (const StateTensor* array =
                       TrainingState::find(state.training, optimizer_tensor(i, slot.arrays.size())))
                slot.arrays.push_back(array_of(i, *array));
            if (slot.steps > 0) set_state(i, std::move(slot));
        }
        auto& model = computation_.model();
        model.for_each_buffer([&](const nn::NamedBuffer& buffer) {
            const StateTensor& tensor = TrainingState::required(state.model, buffer.name);
            if (tensor.shape != buffer.shape || tensor.dtype != buffer.data.dtype)
                throw ArgumentError(text("checkpoint: buffer ", buffer.name, " has another shape or type"));
            model.store_buffer(tensor.bytes.data(), buffer.data);
        });
    }

    /// Continues from the sharded tensors, after restore(). Collective.
    void restore_sharded(ProcessGroup& group, const TrainingState& state) {
        const std::vector<StateTensor>& described = state.sharded.described;
        if (described.empty()) return;
        if (!state.sharded.is_on_all_ranks)
            throw ArgumentError(
                "checkpoint: a sharded optimizer's state can only be restored after Checkpoint has read it");
        const std::vector<std::int64_t> steps = steps_in(state);
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            std::vector<StateTensor> arrays;
            while (const StateTensor* array =
                       TrainingState::find(described, optimizer_tensor(i, arrays.size())))
                arrays.push_back(state.sharded.fetch(static_cast<std::size_t>(array - described.data())));
            if (arrays.empty()) continue;
            on_all_or_none(group, [&] {
                OptimizerState<Scalar> slot{.steps = steps[i]};
                for (const StateTensor& array : arrays) slot.arrays.push_back(array_of(i, array));
                set_state(i, std::move(slot));
            });
        }
    }

  private:
    [[nodiscard]] static std::vector<std::int64_t> steps_in(const TrainingState& state) {
        return TrainingState::required(state.training, "optimizer.steps").template values<std::int64_t>();
    }

    /// Returns an array of the optimizer in the layout of parameter `i`.
    [[nodiscard]] std::vector<Scalar> array_of(std::size_t i, const StateTensor& tensor) {
        auto elements = computation_.upload(std::vector<Scalar>(parameters_[i].count));
        from_row_major(i, tensor, elements.data());
        return computation_.download(elements);
    }

    void set_state(std::size_t i, OptimizerState<Scalar> state) {
        if (sharded_ != nullptr) {
            sharded_->load_state_of(i, state);
        } else {
            computation_.optimizer().set_state(i, std::move(state));
        }
    }

    /// Returns the number of steps of each parameter.
    [[nodiscard]] std::vector<std::int64_t> save_optimizer(TrainingState& state) {
        std::vector<std::int64_t> steps;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (sharded_ != nullptr) {
                steps.push_back(save_slot(state, i, sharded_->state_on_all(i)));
            } else {
                steps.push_back(save_slot(state, i, computation_.optimizer().state(i)));
            }
        }
        return steps;
    }

    /// Returns the number of steps of the slot.
    std::int64_t save_slot(TrainingState& state, std::size_t i, const OptimizerState<Scalar>& slot) {
        for (std::size_t a = 0; a < slot.arrays.size(); ++a) {
            const auto& array = computation_.upload(slot.arrays[a]);
            state.training.push_back(to_row_major(i, optimizer_tensor(i, a), array.data()));
        }
        return slot.steps;
    }

    /// Describes the arrays, which are gathered one by one when they are fetched. Collective.
    [[nodiscard]] std::vector<std::int64_t> save_sharded_optimizer(TrainingState& state) {
        const auto size = sharded_->state_size();
        std::vector<std::int64_t> steps(parameters_.size());
        std::vector<std::pair<std::size_t, std::size_t>> places;  // parameter and array of each tensor
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!sharded_->has_state(i)) continue;
            steps[i] = size.steps;
            for (std::size_t a = 0; a < size.arrays; ++a) {
                state.sharded.described.push_back(
                    {optimizer_tensor(i, a), parameters_[i].shape, dtype_of<Scalar>, {}});
                places.emplace_back(i, a);
            }
        }
        state.sharded.fetch = [own = *this, places](std::size_t tensor) mutable {
            const auto [i, a] = places.at(tensor);
            const std::vector<Scalar> array = own.sharded_->state_array(i, a);
            if (array.size() != own.parameters_[i].count) return StateTensor{};  // on another rank than 0
            return own.to_row_major(i, own.optimizer_tensor(i, a), array.data());
        };
        return steps;
    }

    [[nodiscard]] std::string optimizer_tensor(std::size_t i, std::size_t array) const {
        return text("optimizer.", array, '.', parameters_[i].name);
    }

    Computation& computation_;
    std::span<const ParameterRef> parameters_;
    Sharded* sharded_;
    bool saves_parts_;
};

}  // namespace DPTK_NAMESPACE::detail
