#pragma once

#include "dptk/nn/detail/network_structure.hpp"

#include <variant>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::detail {

using dptk::detail::text;

DPTK_INLINE std::string label_of(const Graph& graph, std::size_t node) {
    const auto& [operation, inputs, shape, name] = graph.nodes()[node];
    return name.empty() ? text("operation ", node, " (", operation_name(operation), ')')
                        : text('"', name, "\" (", operation_name(operation), ')');
}

DPTK_INLINE NetworkStructure structure_of(const Graph& graph,
                                          const std::function<bool(const Operation&)>& fuses_relu) {
    const std::vector<GraphNode>& nodes = graph.nodes();
    if (nodes.size() < 2)
        throw ArgumentError("Network: expected a graph with operations, found only an input");
    NetworkStructure made;
    made.parameters = graph.parameters();
    made.trains_inputs.resize(nodes.size());
    made.feeds_only_linear.assign(nodes.size(), true);
    made.relu.assign(nodes.size(), FusedReLU::none);
    std::vector<std::size_t> consumers(nodes.size());
    std::vector<bool> has_trained(nodes.size());  // whether the value depends on parameters
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const GraphNode& node = nodes[i];
        for (const std::size_t input : node.inputs) {
            ++consumers[input];
            if (!std::holds_alternative<Linear>(node.operation)) made.feeds_only_linear[input] = false;
            if (has_trained[input]) made.trains_inputs[i] = true;
        }
        const std::size_t first = i == 0 ? 0 : made.parameters_end.back();
        made.parameters_end.push_back(first + parameters_of(node.operation, graph.input_shapes(node)).size());
        has_trained[i] = made.trains_inputs[i] || made.parameters_end.back() > first;
        made.labels.push_back(label_of(graph, i));
    }
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
        if (consumers[i] == 0)
            throw ArgumentError(text("Network: the output of ", made.labels[i],
                                     " is not used: expected one output, the last operation's"));
    made.feeds_only_linear.back() = false;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        const std::size_t before = nodes[i].inputs[0];
        if (!std::holds_alternative<ReLU>(nodes[i].operation) || consumers[before] != 1) continue;
        if (before == 0 || !fuses_relu(nodes[before].operation)) continue;
        made.relu[before] = FusedReLU::follows;
        made.relu[i] = FusedReLU::is_done;
    }
    return made;
}

}  // namespace DPTK_NAMESPACE::nn::detail
