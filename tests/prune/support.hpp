/// Helpers of the tests of pruning: networks with values that no channel shares, and comparisons of a masked
/// network with a pruned one.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/prune/prune.hpp"
#include "nn/support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

using Net = Network<Reference<double>>;

/// Changes the parameters and the buffers of batch norms, whose initial values are the same for all channels.
template <class Backend>
void set_norms(Network<Backend>& net) {
    using T = typename Network<Backend>::Scalar;
    const std::vector<ParameterSpec> specs = net.graph().parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].initial == Initial::uniform) continue;
        std::vector<T> values = pattern_values<T>(static_cast<std::uint32_t>(i), specs[i].shape[0]);
        for (T& value : values) value += specs[i].initial == Initial::ones ? T{1} : T{0};
        net.set_parameter_values(i, values);
    }
    std::uint32_t stream = 1000;
    net.for_each_buffer([&](const NamedBuffer& buffer) {
        if (buffer.shape.empty()) return;
        std::vector<T> values = pattern_values<T>(++stream, buffer.data.count);
        for (T& value : values) value += buffer.name.ends_with("running_var") ? T{1} : T{0};
        net.store_buffer(values.data(), buffer.data);
    });
}

/// Returns how far the outputs of the masked and of the pruned network are apart, in evaluation.
template <class Backend>
double error_of_pruning(const Graph& graph, const PruningOptions& options, std::size_t batch = 2) {
    using T = typename Network<Backend>::Scalar;
    Network<Backend> net(graph, 1);
    set_norms(net);
    const PruningPlan plan = plan_pruning(net, options);
    const Graph small = prune(graph, plan);
    CHECK(cost_of(small).parameters < cost_of(graph).parameters);
    CHECK(cost_of(small).multiplications < cost_of(graph).multiplications);
    Network<Backend> pruned(small, 2);
    copy_pruned_values(net, pruned, plan);
    net.set_mode(Mode::evaluate);
    pruned.set_mode(Mode::evaluate);
    const Tensor<T> input = pattern_tensor<T>(7, with_batch(batch, graph.input_shape()), 4);
    const auto output = net.forward(input).values();
    const std::vector<T> before(output.begin(), output.end());
    apply_masks(net, plan);
    const auto masked = net.forward(input).values();
    CHECK(difference(masked, before) > 1e-4);
    return difference(pruned.forward(input).values(), masked);
}

/// Returns the group of the operation with this name.
inline const ChannelGroup& group_of(const ChannelGroups& channels, const Graph& graph,
                                    std::string_view name) {
    for (std::size_t node = 0; node < graph.nodes().size(); ++node)
        if (graph.nodes()[node].name == name) return channels.groups[channels.nodes[node].group];
    throw std::runtime_error("no operation " + std::string(name));
}

/// Returns the names of a group's convolutions.
inline std::vector<std::string> convolutions_of(const ChannelGroup& group, const Graph& graph) {
    std::vector<std::string> names;
    for (const std::size_t node : group.convolutions) names.push_back(graph.nodes()[node].name);
    return names;
}

}  // namespace DPTK_NAMESPACE::nn::testing
