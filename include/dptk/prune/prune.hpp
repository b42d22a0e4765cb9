/// What a PruningPlan is used for: masks while a network is fine-tuned, then the graph and the network
/// without the pruned channels, which compute the same as the masked network in evaluation.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/prune/pruning_plan.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

/// The elements of a parameter or buffer that remain: those in the kept rows (dimension 0) and columns
/// (dimension 1).
struct KeptElements {
    Shape shape;
    std::vector<std::size_t> rows, columns;

    [[nodiscard]] bool drops_rows() const noexcept { return !shape.empty() && rows.size() < shape[0]; }

    /// Returns the number of elements that remain.
    [[nodiscard]] std::size_t count() const noexcept;

    /// Copies the elements that remain. `all` has elements of any type, row-major in `shape`.
    void copy(std::span<const std::byte> all, std::span<std::byte> remaining) const;

    /// Sets the rows that do not remain to zero.
    void zero_dropped_rows(std::span<std::byte> all) const;

  private:
    /// Returns the bytes of one row and column, if all elements have `bytes` bytes.
    [[nodiscard]] std::size_t bytes_of_column(std::size_t bytes) const;
};

/// In the order of Graph::parameters(). Throws ArgumentError if the plan is not of this graph.
[[nodiscard]] std::vector<KeptElements> kept_parameters(const Graph& graph, const PruningPlan& plan);

/// In the order of Graph::buffers(). Throws ArgumentError if the plan is not of this graph.
[[nodiscard]] std::vector<KeptElements> kept_buffers(const Graph& graph, const PruningPlan& plan);

/// Throws ArgumentError unless `pruned` has the parameters and buffers of prune(graph, plan).
void require_pruned(const Graph& graph, const PruningPlan& plan, const Graph& pruned);

}  // namespace detail

/// Makes the outputs of pruned channels 0: sets the weights and biases of their filters, their weights and
/// biases in batch norms, and their running means to 0. Ranks with equal values and plans keep equal values.
/// Parameters that are not row-major in host memory are copied there and back: FilterMasks takes less time in
/// a training loop. Not collective. Throws ArgumentError if the plan is not of the network's graph.
template <class Backend>
void apply_masks(Network<Backend>& net, const PruningPlan& plan) {
    using Scalar = typename Network<Backend>::Scalar;
    const std::vector<detail::KeptElements> parameters = detail::kept_parameters(net.graph(), plan);
    std::size_t i = 0;
    net.for_each_parameter([&](const ParameterRef& parameter) {
        const std::size_t index = i++;
        const detail::KeptElements& kept = parameters[index];
        if (!kept.drops_rows()) return;
        const bool is_row_major = parameter.layout == 0 && !parameter.value_buffer().on_device();
        if (is_row_major) return kept.zero_dropped_rows(std::as_writable_bytes(parameter.values<Scalar>()));
        auto values = net.parameter_values(index);
        kept.zero_dropped_rows(std::as_writable_bytes(std::span(values)));
        net.set_parameter_values(index, values);
    });
    const std::vector<detail::KeptElements> buffers = detail::kept_buffers(net.graph(), plan);
    i = 0;
    for (const NamedBuffer& buffer : detail::buffers_of_net(net)) {
        const detail::KeptElements& kept = buffers[i++];
        if (!kept.drops_rows() || !buffer.name.ends_with(".running_mean")) continue;
        std::vector<std::byte> values(buffer.data.bytes());
        net.fetch_buffer(buffer.data, values.data());
        kept.zero_dropped_rows(values);
        net.store_buffer(values.data(), buffer.data);
    }
}

/// Returns the graph with the channels that remain: operations, names and their order are those of `graph`.
/// Throws ArgumentError if the plan is not of this graph.
[[nodiscard]] Graph prune(const Graph& graph, const PruningPlan& plan);

/// Returns the graph in which each Conv2d has as many filters as `filters` returns for its name: for a pruned
/// network whose weights are in a file, the first dimension of its weight there. A depthwise Conv2d keeps one
/// filter for each channel. Throws ArgumentError if the operations of the result do not fit together.
[[nodiscard]] Graph with_filters(const Graph& graph,
                                 const std::function<std::size_t(const std::string& conv)>& filters);

/// Sets all parameters and buffers of `to`, a network of prune(from.graph(), plan), to the elements of `from`
/// that remain. `to` then computes what `from` computes with masks, in evaluation and up to rounding.
/// Backends may differ. Not collective. Throws ArgumentError, before any value is set, if the plan is not of
/// the graph of `from`, or `to` is not a network of the pruned graph.
template <class From, class To>
void copy_pruned_values(Network<From>& from, Network<To>& to, const PruningPlan& plan) {
    using Scalar = typename Network<From>::Scalar;
    detail::require_pruned(from.graph(), plan, to.graph());
    const std::vector<detail::KeptElements> parameters = detail::kept_parameters(from.graph(), plan);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::vector<Scalar> values = from.parameter_values(i);
        std::vector<Scalar> remaining(parameters[i].count());
        parameters[i].copy(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(remaining)));
        to.set_parameter_values(i, remaining);
    }
    const std::vector<detail::KeptElements> kept = detail::kept_buffers(from.graph(), plan);
    const std::vector<NamedBuffer> all = detail::buffers_of_net(from), pruned = detail::buffers_of_net(to);
    for (std::size_t i = 0; i < kept.size(); ++i) {
        std::vector<std::byte> values(all[i].data.bytes()), remaining(pruned[i].data.bytes());
        from.fetch_buffer(all[i].data, values.data());
        kept[i].copy(values, remaining);
        to.store_buffer(remaining.data(), pruned[i].data);
    }
}

/// The size of a network.
struct NetworkCost {
    std::size_t parameters = 0;       ///< The number of elements of all parameters.
    std::size_t multiplications = 0;  ///< Those of Linear and Conv2d in forward, for one sample.

    friend bool operator==(const NetworkCost&, const NetworkCost&) = default;
};

/// Returns the size of a graph's network. Graph::summary() has the same sums, with two FLOPs for a
/// multiplication.
[[nodiscard]] NetworkCost cost_of(const Graph& graph);

/// Returns a table of the groups that have convolutions: how many channels remain, why all remain where none
/// may be pruned, and the numbers of parameters and FLOPs before and after. Throws ArgumentError if the plan
/// is not of this graph.
[[nodiscard]] std::string pruning_report(const Graph& graph, const PruningPlan& plan);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/prune/prune.ipp"
#endif
