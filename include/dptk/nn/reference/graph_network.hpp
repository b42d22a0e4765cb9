/// GraphNetwork executes a Graph in plain loops, with one buffer for each value: the reference for other
/// backends, and for tests with finite differences.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/reference/graph_operations.hpp"

namespace DPTK_NAMESPACE::nn {

/// A network of scalars of type T.
template <std::floating_point T>
class GraphNetwork {
  public:
    using Scalar = T;  ///< The element type of parameters, inputs and outputs.

    /// Makes a network with the graph's operations. `seed` determines the initial values and the elements
    /// that dropout drops.
    GraphNetwork(Graph graph, std::uint64_t seed)
        : graph_(std::move(graph)),
          seed_(seed),
          memory_(graph_.nodes().size()),
          outputs_(memory_.size()),
          gradients_(memory_.size()) {
        Generator generator(seed);
        for (std::size_t node = 0; node < memory_.size(); ++node) {
            const std::vector<Shape> shapes = shapes_of_inputs(node);
            for (const ParameterSpec& spec : parameters_of(graph_.nodes()[node].operation, shapes)) {
                Tensor<T>& value = memory_[node].parameters.emplace_back(spec.shape);
                memory_[node].gradients.emplace_back(spec.shape);
                if (spec.initial == Initial::ones) value.fill(1);
                if (spec.initial == Initial::uniform) {
                    const std::vector<T> values = initial_values<T>(value.size(), spec.fan_in, generator);
                    std::copy(values.begin(), values.end(), value.data());
                }
                parameters_.push_back(
                    {node, memory_[node].parameters.size() - 1, graph_.nodes()[node].name + '.' + spec.name});
            }
            if (std::holds_alternative<operations::BatchNorm2d>(graph_.nodes()[node].operation)) {
                memory_[node].statistics.emplace_back(Shape{shapes[0][0]});
                memory_[node].statistics.emplace_back(Shape{shapes[0][0]});
                memory_[node].statistics[1].fill(1);
            }
        }
    }

    /// Returns the graph.
    [[nodiscard]] const Graph& graph() const noexcept { return graph_; }

    /// Sets how subsequent forward passes treat batch norms and dropout.
    void set_mode(reference::Mode mode) noexcept { mode_ = mode; }

    /// Makes the batch norms that are synchronized use the batches of all ranks of the group: two all_reduces
    /// in forward, and one in backward. The group must outlive the network. Ranks may have batches of
    /// different sizes, also empty ones.
    template <class Group>
    void set_group(Group& group) {
        sum_over_ranks_ = [&group](std::span<double> values) { group.all_reduce(values); };
    }

    /// Returns the output [n, ...] for an input [n, ...]. Collective if batch norms are synchronized. Throws
    /// ArgumentError for an input of another shape.
    const Tensor<T>& forward(const Tensor<T>& input) {
        const Shape& sample = graph_.nodes()[0].shape;
        Shape expected{input.shape().empty() ? 0 : input.shape()[0]};
        expected.insert(expected.end(), sample.begin(), sample.end());
        if (input.shape() != expected || input.shape().empty())
            throw ArgumentError(detail::text("GraphNetwork: expected an input of shape [n, ...] with ",
                                             detail::shape_text(sample), ", found ",
                                             detail::shape_text(input.shape())));
        batch_ = expected[0];
        passed_mode_ = mode_;
        passed_step_ = step_;
        for (std::size_t node = 0; node < memory_.size(); ++node) {
            outputs_[node].resize(batch_, graph_.nodes()[node].shape);
            if (node == 0) std::copy(input.values().begin(), input.values().end(), outputs_[0].data());
            call(node, [&](const auto& operation, const auto& arguments) {
                reference::forward(operation, arguments);
            });
        }
        if (mode_ == reference::Mode::train) ++step_;
        return outputs_.back();
    }

    /// Computes the gradients of all parameters and of the input, for the gradient of the last forward's
    /// output. Calls `on_ready(i)` as soon as the gradient of parameter `i` is complete.
    template <std::invocable<std::size_t> OnReady>
    void backward(const Tensor<T>& output_gradient, OnReady&& on_ready) {
        if (output_gradient.shape() != outputs_.back().shape())
            throw ArgumentError(detail::text("GraphNetwork: expected an output gradient of shape ",
                                             detail::shape_text(outputs_.back().shape()), ", found ",
                                             detail::shape_text(output_gradient.shape())));
        for (std::size_t node = 0; node < memory_.size(); ++node) {
            gradients_[node].resize(outputs_[node].shape());
            gradients_[node].fill(0);
        }
        std::copy(output_gradient.values().begin(), output_gradient.values().end(), gradients_.back().data());
        std::size_t parameter = parameters_.size();
        for (std::size_t node = memory_.size(); node-- > 0;) {
            call(node, [&](const auto& operation, const auto& arguments) {
                reference::backward(operation, arguments);
            });
            while (parameter > 0 && parameters_[parameter - 1].node == node) on_ready(--parameter);
        }
    }

    /// Returns the gradient of the input from the last backward.
    [[nodiscard]] const Tensor<T>& input_gradient() const noexcept { return gradients_[0]; }

    /// Calls `sink(ParameterRef)` for each parameter, in the order of Graph::parameters().
    template <std::invocable<ParameterRef> Sink>
    void for_each_parameter(Sink&& sink) {
        for (const Place& place : parameters_) {
            Tensor<T>& value = memory_[place.node].parameters[place.index];
            sink(ParameterRef{.name = place.name,
                              .shape = value.shape(),
                              .dtype = dtype_of<T>,
                              .count = value.size(),
                              .value = value.data(),
                              .gradient = memory_[place.node].gradients[place.index].data()});
        }
    }

    /// Calls `sink(NamedBuffer)` for each buffer, in the order of Graph::buffers().
    template <std::invocable<NamedBuffer> Sink>
    void for_each_buffer(Sink&& sink) {
        for (std::size_t node = 0; node < memory_.size(); ++node) {
            reference::OperationMemory<T>& memory = memory_[node];
            if (memory.statistics.empty()) continue;
            const std::string prefix = graph_.nodes()[node].name + '.';
            const Shape& shape = memory.statistics[0].shape();
            const auto statistic = [&](std::size_t which) {
                return Buffer{memory.statistics[which].data(), memory.statistics[which].size(), dtype_of<T>};
            };
            sink(NamedBuffer{prefix + "running_mean", shape, statistic(0)});
            sink(NamedBuffer{prefix + "running_var", shape, statistic(1)});
            sink(NamedBuffer{prefix + "num_batches_tracked", {}, Buffer{&memory.batches, 1, DType::i64}});
        }
    }

    /// Sets the values of parameter `i` from row-major elements.
    void set_parameter_values(std::size_t i, std::span<const T> values) {
        const std::span<T> own = parameter_values(i);
        if (values.size() != own.size())
            throw ArgumentError(dptk::detail::text("GraphNetwork: parameter ", parameters_[i].name,
                                                   ": expected ", own.size(), " values, found ",
                                                   values.size()));
        std::copy(values.begin(), values.end(), own.begin());
    }

    /// Returns the number of parameters.
    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }

    /// Returns the values of parameter `i`, row-major.
    [[nodiscard]] std::span<T> parameter_values(std::size_t i) {
        return memory_[parameters_.at(i).node].parameters[parameters_.at(i).index].values();
    }

    /// Returns the gradient of parameter `i`, row-major.
    [[nodiscard]] std::span<const T> parameter_gradient(std::size_t i) const {
        return memory_[parameters_.at(i).node].gradients[parameters_.at(i).index].values();
    }

    /// Returns the running mean (0) or variance (1) of a batch norm.
    [[nodiscard]] std::span<T> statistics(Value norm, std::size_t which) {
        return memory_.at(norm.node).statistics.at(which).values();
    }

  private:
    struct Place {
        std::size_t node;
        std::size_t index;
        std::string name;
    };

    [[nodiscard]] std::vector<Shape> shapes_of_inputs(std::size_t node) const {
        std::vector<Shape> shapes;
        for (const std::size_t input : graph_.nodes()[node].inputs)
            shapes.push_back(graph_.nodes()[input].shape);
        return shapes;
    }

    template <class Function>
    void call(std::size_t node, Function&& function) {
        const std::vector<Shape> shapes = shapes_of_inputs(node);
        std::vector<const T*> inputs;
        std::vector<T*> input_gradients;
        for (const std::size_t input : graph_.nodes()[node].inputs) {
            inputs.push_back(outputs_[input].data());
            input_gradients.push_back(gradients_[input].data());
        }
        const reference::OperationCall<T> arguments{.batch = batch_,
                                                    .shapes = shapes,
                                                    .inputs = inputs,
                                                    .output = outputs_[node].values(),
                                                    .output_gradient = gradients_[node].values(),
                                                    .input_gradients = input_gradients,
                                                    .mode = passed_mode_,
                                                    .seed = seed_,
                                                    .step = passed_step_,
                                                    .node = node,
                                                    .sum_over_ranks = sum_over_ranks_,
                                                    .memory = memory_[node]};
        std::visit([&](const auto& operation) { function(operation, arguments); },
                   graph_.nodes()[node].operation);
    }

    Graph graph_;
    std::uint64_t seed_;
    reference::Mode mode_ = reference::Mode::train;
    reference::Mode passed_mode_ = reference::Mode::train;  // that of the last forward
    std::size_t batch_ = 0;
    std::int64_t step_ = 0;                              // the number of forward passes in training
    std::int64_t passed_step_ = 0;                       // that of the last forward
    std::vector<reference::OperationMemory<T>> memory_;  // by node
    std::vector<Tensor<T>> outputs_;
    std::vector<Tensor<T>> gradients_;
    std::vector<Place> parameters_;
    std::function<void(std::span<double>)> sum_over_ranks_;
};

}  // namespace DPTK_NAMESPACE::nn
