#pragma once

#include "dptk/prune/prune.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

using dptk::detail::text;

DPTK_INLINE std::size_t KeptElements::count() const noexcept {
    std::size_t product = rows.size() * columns.size();
    for (std::size_t i = 2; i < shape.size(); ++i) product *= shape[i];
    return product;
}

DPTK_INLINE std::size_t KeptElements::bytes_of_column(std::size_t bytes) const {
    return bytes / (shape.empty() ? 1 : shape[0]) / (shape.size() < 2 ? 1 : shape[1]);
}

DPTK_INLINE void KeptElements::copy(std::span<const std::byte> all, std::span<std::byte> remaining) const {
    const std::size_t size = bytes_of_column(all.size());
    const std::size_t width = shape.size() < 2 ? 1 : shape[1];
    std::byte* out = remaining.data();
    for (const std::size_t row : rows) {
        for (const std::size_t column : columns) {
            std::memcpy(out, all.data() + (row * width + column) * size, size);
            out += size;
        }
    }
}

DPTK_INLINE void KeptElements::zero_dropped_rows(std::span<std::byte> all) const {
    const std::size_t size = all.size() / shape[0];
    for (std::size_t row = 0, kept = 0; row < shape[0]; ++row) {
        if (kept < rows.size() && rows[kept] == row) {
            ++kept;
        } else {
            dptk::detail::fill(all.subspan(row * size, size), std::byte{0});
        }
    }
}

DPTK_INLINE void require_plan_of(const Graph& graph, const PruningPlan& plan) {
    const ChannelGroups expected = channel_groups(graph);
    const auto is_same = [](const ChannelGroup& a, const ChannelGroup& b) {
        return a.channels == b.channels && a.convolutions == b.convolutions && a.norms == b.norms;
    };
    if (expected.nodes != plan.channels.nodes || plan.kept.size() != expected.groups.size() ||
        !dptk::detail::equal(expected.groups, plan.channels.groups, is_same))
        throw ArgumentError(
            "PruningPlan: expected a plan of this graph, found one of a graph with other operations or "
            "numbers of channels");
}

[[nodiscard]] DPTK_INLINE std::vector<std::size_t> all_below(std::size_t count) {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
}

/// Returns the elements of an operation's output that remain, in its first dimension.
[[nodiscard]] DPTK_INLINE std::vector<std::size_t> kept_outputs(const PruningPlan& plan, std::size_t node) {
    const auto [group, repeat] = plan.channels.nodes[node];
    std::vector<std::size_t> kept;
    for (const std::size_t channel : plan.kept[group])
        for (std::size_t i = 0; i < repeat; ++i) kept.push_back(channel * repeat + i);
    return kept;
}

/// Returns what remains of a parameter or buffer of an operation.
[[nodiscard]] DPTK_INLINE KeptElements kept_elements(const Graph& graph, const PruningPlan& plan,
                                                     std::size_t node, const Shape& shape) {
    KeptElements kept{shape, all_below(shape.empty() ? 1 : shape[0]),
                      all_below(shape.size() < 2 ? 1 : shape[1])};
    const GraphNode& described = graph.nodes()[node];
    const auto* const conv = std::get_if<Conv2d>(&described.operation);
    const bool is_linear = std::holds_alternative<Linear>(described.operation);
    const bool is_norm = std::holds_alternative<BatchNorm2d>(described.operation);
    if (!shape.empty() && (conv != nullptr || is_linear || is_norm)) kept.rows = kept_outputs(plan, node);
    const bool sees_all_inputs = is_linear || (conv != nullptr && conv->groups == 1);
    if (shape.size() > 1 && sees_all_inputs) kept.columns = kept_outputs(plan, described.inputs[0]);
    return kept;
}

/// Applies kept_elements() to what `specs_of` returns for each operation.
template <class SpecsOf>
[[nodiscard]] std::vector<KeptElements> kept_of_all(const Graph& graph, const PruningPlan& plan,
                                                    SpecsOf specs_of) {
    require_plan_of(graph, plan);
    std::vector<KeptElements> all;
    for (std::size_t node = 0; node < graph.nodes().size(); ++node) {
        const GraphNode& described = graph.nodes()[node];
        for (const auto& spec : specs_of(described.operation, graph.input_shapes(described)))
            all.push_back(kept_elements(graph, plan, node, spec.shape));
    }
    return all;
}

DPTK_INLINE std::vector<KeptElements> kept_parameters(const Graph& graph, const PruningPlan& plan) {
    return kept_of_all(graph, plan, parameters_of);
}

DPTK_INLINE std::vector<KeptElements> kept_buffers(const Graph& graph, const PruningPlan& plan) {
    return kept_of_all(graph, plan, buffers_of);
}

DPTK_INLINE void require_pruned(const Graph& graph, const PruningPlan& plan, const Graph& pruned) {
    const Graph made = prune(graph, plan);
    const auto is_same = [](const auto& a, const auto& b) { return a.name == b.name && a.shape == b.shape; };
    if (!dptk::detail::equal(made.parameters(), pruned.parameters(), is_same) ||
        !dptk::detail::equal(made.buffers(), pruned.buffers(), is_same))
        throw ArgumentError(
            "copy_pruned_values: expected a network of the graph that prune() returns for this plan, found "
            "one "
            "with other parameters");
}

/// Returns the graph in which each Conv2d has `filters(index of the operation)` filters.
template <class Filters>
[[nodiscard]] Graph replace_filters(const Graph& graph, Filters filters) {
    Graph changed(graph.input_shape());
    for (std::size_t i = 1; i < graph.nodes().size(); ++i) {
        const GraphNode& node = graph.nodes()[i];
        Operation operation = node.operation;
        if (auto* const conv = std::get_if<Conv2d>(&operation)) {
            const bool is_depthwise = detail::is_depthwise(*conv, graph.input_shapes(node)[0][0]);
            conv->out_channels = filters(i);
            if (is_depthwise) conv->groups = conv->out_channels;
        }
        std::vector<Value> inputs;
        for (const std::size_t input : node.inputs) inputs.push_back({input});
        changed.add_operation(std::move(operation), inputs, node.name);
    }
    return changed;
}

[[nodiscard]] DPTK_INLINE std::string change_text(std::size_t before, std::size_t after) {
    const double change = 100 * (static_cast<double>(after) / static_cast<double>(before) - 1);
    return text(before, " before, ", after, " after (", std::round(10 * change) / 10, " %)");
}

}  // namespace detail

DPTK_INLINE Graph prune(const Graph& graph, const PruningPlan& plan) {
    detail::require_plan_of(graph, plan);
    return detail::replace_filters(
        graph, [&](std::size_t node) { return plan.kept[plan.channels.nodes[node].group].size(); });
}

DPTK_INLINE Graph with_filters(const Graph& graph,
                               const std::function<std::size_t(const std::string& conv)>& filters) {
    return detail::replace_filters(graph,
                                   [&](std::size_t node) { return filters(graph.nodes()[node].name); });
}

DPTK_INLINE NetworkCost cost_of(const Graph& graph) {
    NetworkCost cost;
    for (const ParameterSpec& parameter : graph.parameters())
        cost.parameters += element_count(parameter.shape);
    for (const GraphNode& node : graph.nodes())
        cost.multiplications += multiplications_of(node.operation, graph.input_shapes(node));
    return cost;
}

DPTK_INLINE std::string pruning_report(const Graph& graph, const PruningPlan& plan) {
    const NetworkCost before = cost_of(graph), after = cost_of(prune(graph, plan));
    std::string report;
    for (std::size_t i = 0; i < plan.kept.size(); ++i) {
        const ChannelGroup& group = plan.channels.groups[i];
        if (group.convolutions.empty()) continue;
        report += detail::text(plan.kept[i].size(), " of ", group.channels, " channels of ");
        for (std::size_t k = 0; k < group.convolutions.size(); ++k)
            report += detail::text(k == 0 ? "" : ", ", graph.nodes()[group.convolutions[k]].name);
        report += group.is_prunable() ? "\n" : detail::text(": ", group.reason_to_keep, '\n');
    }
    return report +
           detail::text("parameters: ", detail::change_text(before.parameters, after.parameters), "\nFLOPs: ",
                        detail::change_text(2 * before.multiplications, 2 * after.multiplications), '\n');
}

}  // namespace DPTK_NAMESPACE::nn
