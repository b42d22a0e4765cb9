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
    made.feeds_only_linear.assign(nodes.size(), true);
    made.relu.assign(nodes.size(), FusedReLU::none);
    std::vector<std::size_t> consumers(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const GraphNode& node = nodes[i];
        for (const std::size_t input : node.inputs) {
            ++consumers[input];
            if (!std::holds_alternative<Linear>(node.operation)) made.feeds_only_linear[input] = false;
        }
        const std::size_t first = i == 0 ? 0 : made.parameters_end.back();
        made.parameters_end.push_back(first + parameters_of(node.operation, graph.input_shapes(node)).size());
        made.labels.push_back(label_of(graph, i));
    }
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
        if (consumers[i] == 0)
            throw ArgumentError(text("Network: the output of ", made.labels[i],
                                     " is not used: expected one output, the last operation's"));
    set_frozen(made, graph, std::vector<bool>(made.parameters.size(), false));
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

DPTK_INLINE void set_frozen(NetworkStructure& structure, const Graph& graph,
                            const std::vector<bool>& is_frozen) {
    const std::vector<GraphNode>& nodes = graph.nodes();
    structure.trains.assign(nodes.size(), false);
    structure.trains_inputs.assign(nodes.size(), false);
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        for (std::size_t p = structure.parameters_end[i - 1]; p < structure.parameters_end[i]; ++p)
            if (!is_frozen[p]) structure.trains[i] = true;
        for (const std::size_t input : nodes[i].inputs)
            if (structure.trains[input] || structure.trains_inputs[input]) structure.trains_inputs[i] = true;
    }
}

}  // namespace DPTK_NAMESPACE::nn::detail
