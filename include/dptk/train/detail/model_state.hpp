/// The state of a model and its optimizer in checkpoints: row-major, whatever the backend's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/optim/optimizer.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE::detail {

/// The state of the model and the optimizer of a TrainerComputation.
template <class Computation>
class ModelState {
  public:
    using Scalar = typename Computation::Scalar;

    ModelState(Computation& computation, std::span<const ParameterRef> parameters)
        : computation_(computation), parameters_(parameters) {}

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

    /// Adds parameters, buffers and the optimizer's arrays.
    void save(TrainingState& state) {
        std::vector<std::int64_t> steps;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            state.model.push_back(to_row_major(i, parameters_[i].name, parameters_[i].value));
            const OptimizerState<Scalar>& slot = computation_.optimizer().state(i);
            steps.push_back(slot.steps);
            for (std::size_t a = 0; a < slot.arrays.size(); ++a) {
                const auto& array = computation_.upload(slot.arrays[a]);
                state.training.push_back(to_row_major(i, optimizer_tensor(i, a), array.data()));
            }
        }
        state.training.push_back(StateTensor::of<std::int64_t>("optimizer.steps", {steps.size()}, steps));
        auto& model = computation_.model();
        model.for_each_buffer([&](const nn::NamedBuffer& buffer) {
            StateTensor tensor{buffer.name, buffer.shape, buffer.data.dtype, {}};
            tensor.bytes.resize(buffer.data.bytes());
            model.fetch_buffer(buffer.data, tensor.bytes.data());
            state.model.push_back(std::move(tensor));
        });
    }

    /// Continues from what save() has added.
    void restore(const TrainingState& state) {
        const std::vector<std::int64_t> steps =
            TrainingState::required(state.training, "optimizer.steps").template values<std::int64_t>();
        if (steps.size() != parameters_.size())
            throw ArgumentError(
                text("checkpoint: it has ", steps.size(), " parameters, the model ", parameters_.size()));
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            from_row_major(i, TrainingState::required(state.model, parameters_[i].name),
                           parameters_[i].value);
            OptimizerState<Scalar> slot{.steps = steps[i]};
            while (const StateTensor* array =
                       TrainingState::find(state.training, optimizer_tensor(i, slot.arrays.size()))) {
                auto elements = computation_.upload(std::vector<Scalar>(parameters_[i].count));
                from_row_major(i, *array, elements.data());
                slot.arrays.push_back(computation_.download(elements));
            }
            if (slot.steps > 0) computation_.optimizer().set_state(i, std::move(slot));
        }
        auto& model = computation_.model();
        model.for_each_buffer([&](const nn::NamedBuffer& buffer) {
            const StateTensor& tensor = TrainingState::required(state.model, buffer.name);
            if (tensor.shape != buffer.shape || tensor.dtype != buffer.data.dtype)
                throw ArgumentError(text("checkpoint: buffer ", buffer.name, " has another shape or type"));
            model.store_buffer(tensor.bytes.data(), buffer.data);
        });
    }

  private:
    [[nodiscard]] std::string optimizer_tensor(std::size_t i, std::size_t array) const {
        return text("optimizer.", array, '.', parameters_[i].name);
    }

    Computation& computation_;
    std::span<const ParameterRef> parameters_;
};

}  // namespace DPTK_NAMESPACE::detail
