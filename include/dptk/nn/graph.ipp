#pragma once

#include "dptk/nn/graph.hpp"

#include <algorithm>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

/// Returns the parameters or buffers of all operations, with the operations' names.
template <class Spec>
[[nodiscard]] std::vector<Spec> named_specs(const Graph& graph,
                                            std::vector<Spec> (*specs_of)(const Operation&, InputShapes)) {
    std::vector<Spec> all;
    for (const GraphNode& node : graph.nodes()) {
        for (Spec& spec : specs_of(node.operation, graph.input_shapes(node))) {
            spec.name = node.name + '.' + spec.name;
            all.push_back(std::move(spec));
        }
    }
    return all;
}

}  // namespace detail

DPTK_INLINE Graph::Graph(Shape input) {
    add_operation(Input{std::move(input)}, {}, "input");
}

DPTK_INLINE Value Graph::add_operation(Operation operation, const std::vector<Value>& inputs,
                                       std::string_view name) {
    GraphNode node{std::move(operation), {}, {}, name.empty() ? "" : prefix_ + std::string(name)};
    const std::string what = node.name.empty() ? dptk::detail::text("operation ", nodes_.size())
                                               : dptk::detail::text('"', node.name, '"');
    for (const Value& input : inputs) {
        if (input.node >= nodes_.size())
            throw ArgumentError(dptk::detail::text(what, ": expected inputs that are values of this graph"));
        node.inputs.push_back(input.node);
    }
    if (inputs.empty() && !nodes_.empty())
        throw ArgumentError(dptk::detail::text(what, ": expected inputs, except for the first operation"));
    const std::vector<Shape> shapes = input_shapes(node);
    try {
        node.shape = output_shape_of(node.operation, shapes);
    } catch (const ArgumentError& error) {
        throw ArgumentError(dptk::detail::text(what, ": ", error.what()));
    }
    if (!parameters_of(node.operation, shapes).empty()) {
        const auto is_same = [&](const GraphNode& other) { return other.name == node.name; };
        if (node.name.empty() || std::any_of(nodes_.begin(), nodes_.end(), is_same))
            throw ArgumentError(dptk::detail::text(what, ": expected a name of its own for ",
                                                   operation_name(node.operation), ", which has parameters"));
    }
    nodes_.push_back(std::move(node));
    return {nodes_.size() - 1};
}

DPTK_INLINE const Shape& Graph::shape(Value value) const {
    if (value.node >= nodes_.size())
        throw ArgumentError(
            dptk::detail::text("Graph: expected a value of this graph, found operation ", value.node));
    return nodes_[value.node].shape;
}

DPTK_INLINE Graph::Scope Graph::scope(std::string_view name) {
    return {*this, name};
}

DPTK_INLINE Graph::Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), before_(graph.prefix_) {
    graph.prefix_ += std::string(name) + '.';
}

DPTK_INLINE void Graph::synchronize_batch_norms() noexcept {
    for (GraphNode& node : nodes_) {
        if (auto* const norm = std::get_if<BatchNorm2d>(&node.operation)) norm->is_synchronized = true;
    }
}

DPTK_INLINE bool Graph::has_synchronized_batch_norms() const noexcept {
    return dptk::detail::any_of(nodes_, [](const GraphNode& node) {
        const auto* const norm = std::get_if<BatchNorm2d>(&node.operation);
        return norm != nullptr && norm->is_synchronized;
    });
}

DPTK_INLINE std::vector<Shape> Graph::input_shapes(const GraphNode& node) const {
    std::vector<Shape> shapes;
    for (const std::size_t input : node.inputs) shapes.push_back(nodes_[input].shape);
    return shapes;
}

DPTK_INLINE std::vector<ParameterSpec> Graph::parameters() const {
    return detail::named_specs(*this, parameters_of);
}

DPTK_INLINE std::vector<BufferSpec> Graph::buffers() const {
    return detail::named_specs(*this, buffers_of);
}

DPTK_INLINE std::string Graph::summary() const {
    std::string table;
    const auto add_row = [&](const std::string& name, std::string_view operation, const std::string& shape,
                             const std::string& parameters, const std::string& flops) {
        const auto space = [](std::string_view text, std::size_t width) {
            return std::string(width > text.size() ? width - text.size() : 0, ' ');
        };
        table += dptk::detail::text(name, space(name, 33), operation, space(operation, 19), shape,
                                    space(shape, 20), space(parameters, 13), parameters, space(flops, 17),
                                    flops, '\n');
    };
    add_row("name", "operation", "output", "parameters", "FLOPs");
    std::size_t all_parameters = 0, all_flops = 0;
    for (const GraphNode& node : nodes_) {
        const std::vector<Shape> shapes = input_shapes(node);
        std::size_t parameters = 0;
        for (const ParameterSpec& parameter : parameters_of(node.operation, shapes))
            parameters += element_count(parameter.shape);
        const std::size_t flops = 2 * multiplications_of(node.operation, shapes);
        all_parameters += parameters;
        all_flops += flops;
        add_row(node.name, operation_name(node.operation), dptk::detail::shape_text(node.shape),
                std::to_string(parameters), std::to_string(flops));
    }
    add_row("sum", "", "", std::to_string(all_parameters), std::to_string(all_flops));
    return table;
}

DPTK_INLINE Graph sequential(Shape input, const std::vector<Operation>& operations) {
    Graph graph(std::move(input));
    Value x = graph.input();
    for (std::size_t i = 0; i < operations.size(); ++i)
        x = graph.add_operation(operations[i], {x}, std::to_string(i));
    return graph;
}

}  // namespace DPTK_NAMESPACE::nn
