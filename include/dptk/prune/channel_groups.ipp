#pragma once

#include "dptk/prune/channel_groups.hpp"

#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/nn/detail/network_structure.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

using dptk::detail::text;

DPTK_INLINE bool is_depthwise(const Conv2d& conv, std::size_t input_channels) noexcept {
    return conv.groups > 1 && conv.groups == input_channels && conv.out_channels == input_channels;
}

template <class... Operations>
[[nodiscard]] bool is_one_of(const Operation& operation) {
    return (std::holds_alternative<Operations>(operation) || ...);
}

/// Disjoint sets of channels, which grow as the walk finds operations that tie them.
class ChannelWalk {
  public:
    explicit ChannelWalk(const Graph& graph) : graph_(graph) {
        for (std::size_t node = 0; node < graph.nodes().size(); ++node) visit(node);
        keep(nodes_.size() - 1, "the graph's output has them");
    }

    [[nodiscard]] ChannelGroups groups() {
        ChannelGroups made;
        std::map<std::size_t, std::size_t> group_of;  // by root
        for (std::size_t node = 0; node < nodes_.size(); ++node) {
            const auto [set, repeat] = nodes_[node];
            const auto [at, is_new] = group_of.emplace(root(set), made.groups.size());
            if (is_new)
                made.groups.push_back({graph_.nodes()[node].shape[0] / repeat, {}, {}, reasons_[root(set)]});
            made.nodes.push_back({at->second, repeat});
            ChannelGroup& group = made.groups[at->second];
            const Operation& operation = graph_.nodes()[node].operation;
            if (std::holds_alternative<Conv2d>(operation)) group.convolutions.push_back(node);
            if (std::holds_alternative<BatchNorm2d>(operation)) group.norms.push_back(node);
        }
        return made;
    }

  private:
    void visit(std::size_t index) {
        const GraphNode& node = graph_.nodes()[index];
        const Operation& operation = node.operation;
        if (is_one_of<ReLU, ReLU6, SiLU, MaxPool2d, AvgPool2d, GlobalAvgPool2d, Dropout, Flatten>(operation))
            return pass(index, is_zero_[node.inputs[0]]);
        if (is_one_of<Sigmoid>(operation)) return pass(index, false);
        if (is_one_of<BatchNorm2d>(operation)) return pass(index, true);
        if (is_one_of<Add, Multiply>(operation) && has_tied_inputs(node)) {
            const std::size_t a = node.inputs[0], b = node.inputs[1];
            unite(nodes_[a].group, nodes_[b].group);
            const bool is_product = std::holds_alternative<Multiply>(operation);
            return pass(index, is_product ? is_zero_[a] || is_zero_[b] : is_zero_[a] && is_zero_[b]);
        }
        const auto* const conv = std::get_if<Conv2d>(&operation);
        const bool is_linear = std::holds_alternative<Linear>(operation);
        if (conv != nullptr && is_depthwise(*conv, graph_.nodes()[node.inputs[0]].shape[0]))
            return pass(index, true);
        const std::string label = label_of(graph_, index);
        if (is_linear || (conv != nullptr && conv->groups == 1)) {
            const std::size_t input = node.inputs[0];
            if (!is_zero_[input]) keep(input, text("they reach ", label, " through Sigmoid"));
            return begin(is_linear ? text("they are outputs of ", label) : "");
        }
        const std::string reason =
            is_one_of<Input>(operation) ? "they are the graph's input" : text("they belong to ", label);
        for (const std::size_t input : node.inputs) keep(input, reason);
        begin(reason);
    }

    [[nodiscard]] bool has_tied_inputs(const GraphNode& node) const {
        const std::vector<Shape> shapes = graph_.input_shapes(node);
        return shapes[0][0] == shapes[1][0] && nodes_[node.inputs[0]].repeat == nodes_[node.inputs[1]].repeat;
    }

    /// The output has the channels of the first input. `is_zero` tells whether it is 0 if they are pruned.
    void pass(std::size_t index, bool is_zero) {
        const GraphNode& node = graph_.nodes()[index];
        const auto [group, repeat] = nodes_[node.inputs[0]];
        const bool is_flat = std::holds_alternative<Flatten>(node.operation);
        const std::size_t pixels = is_flat ? node.shape[0] / graph_.nodes()[node.inputs[0]].shape[0] : 1;
        nodes_.push_back({group, repeat * pixels});
        is_zero_.push_back(is_zero);
    }

    /// The output has channels of its own.
    void begin(std::string reason_to_keep) {
        nodes_.push_back({parents_.size(), 1});
        is_zero_.push_back(true);
        parents_.push_back(parents_.size());
        reasons_.push_back(std::move(reason_to_keep));
    }

    [[nodiscard]] std::size_t root(std::size_t set) const {
        while (parents_[set] != set) set = parents_[set];
        return set;
    }

    void keep(std::size_t node, const std::string& reason) {
        std::string& own = reasons_[root(nodes_[node].group)];
        if (own.empty()) own = reason;
    }

    void unite(std::size_t a, std::size_t b) {
        a = root(a);
        b = root(b);
        if (reasons_[a].empty()) reasons_[a] = reasons_[b];
        parents_[b] = a;
    }

    const Graph& graph_;
    std::vector<NodeChannels> nodes_;   // by operation, with the index of a set
    std::vector<bool> is_zero_;         // by operation: whether outputs of pruned channels are 0
    std::vector<std::size_t> parents_;  // by set: a set that it is part of; itself for a root
    std::vector<std::string> reasons_;  // by set: ChannelGroup::reason_to_keep, valid for roots
};

}  // namespace detail

DPTK_INLINE ChannelGroups channel_groups(const Graph& graph) {
    return detail::ChannelWalk(graph).groups();
}

}  // namespace DPTK_NAMESPACE::nn
