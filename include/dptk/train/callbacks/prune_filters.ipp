#pragma once

#include "dptk/train/callbacks/prune_filters.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/prune/channel_groups.hpp"
#include "dptk/prune/slim.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

DPTK_INLINE void require_prunable(const nn::Graph& graph, nn::PruningOptions options) {
    if (options.score == nn::FilterScore::fpgm) options.score = nn::FilterScore::l1;  // takes less time
    const std::vector<nn::ParameterSpec> parameters = graph.parameters();
    static_cast<void>(nn::detail::plan_pruning(graph, options, [&](std::size_t i) {
        return std::vector<double>(element_count(parameters[i].shape));
    }));
}

DPTK_INLINE std::string options_text(const nn::PruningOptions& options) {
    constexpr const char* scores[] = {"l1", "l2", "fpgm", "slim"};
    std::string all = text(scores[static_cast<std::size_t>(options.score)], ", ratio ", options.ratio,
                           options.scope == nn::PruningScope::network ? " of the network" : "",
                           ", min_channels ", options.min_channels, ", multiple_of ", options.multiple_of);
    for (const std::string& name : options.skip) all += text(", skip ", name);
    return all;
}

DPTK_INLINE std::string kept_table(const nn::Graph& graph, const nn::PruningPlan& plan) {
    std::string table;
    for (std::size_t group = 0; group < plan.kept.size(); ++group) {
        const std::vector<std::size_t>& convolutions = plan.channels.groups[group].convolutions;
        if (convolutions.empty()) continue;
        table += text("remaining channels of ", graph.nodes()[convolutions.front()].name, ':');
        for (const std::size_t channel : plan.kept[group]) table += text(' ', channel);
        table += '\n';
    }
    return table;
}

DPTK_INLINE void save_plan(const nn::PruningPlan& plan, const nn::PruningOptions& options,
                           TrainingState& state) {
    std::vector<std::int64_t> remains;  // by group and channel: 0 or 1
    for (std::size_t group = 0; group < plan.kept.size(); ++group) {
        const std::size_t first = remains.size();
        remains.resize(first + plan.channels.groups[group].channels);
        for (const std::size_t channel : plan.kept[group]) remains[first + channel] = 1;
    }
    state.training.push_back(StateTensor::of<std::int64_t>("prune.remains", {remains.size()}, remains));
    state.values["prune.options"] = options_text(options);
}

DPTK_INLINE std::optional<nn::PruningPlan> restore_plan(const nn::Graph& graph,
                                                        const nn::PruningOptions& options,
                                                        const TrainingState& state) {
    const StateTensor* const tensor = TrainingState::find(state.training, "prune.remains");
    if (tensor == nullptr) return std::nullopt;
    const std::string& saved = state.value("prune.options");
    if (saved != options_text(options))
        throw ArgumentError(
            text("checkpoint: it was pruned with ", saved, "; this run has ", options_text(options)));
    const std::vector<std::int64_t> remains = tensor->values<std::int64_t>();
    nn::PruningPlan plan{nn::channel_groups(graph), {}};
    std::size_t next = 0;
    for (const nn::ChannelGroup& group : plan.channels.groups) {
        std::vector<std::size_t>& kept = plan.kept.emplace_back();
        for (std::size_t channel = 0; channel < group.channels; ++channel, ++next)
            if (next < remains.size() && remains[next] != 0) kept.push_back(channel);
    }
    if (next != remains.size())
        throw ArgumentError(text("checkpoint: it has masks of ", remains.size(),
                                 " channels, the network has ", next, " channels"));
    return plan;
}

}  // namespace detail

DPTK_INLINE SlimPenalty::SlimPenalty(const nn::Graph& graph, double factor, int until_epoch)
    : graph_(&graph), factor_(factor), until_epoch_(until_epoch) {
    if (!std::isfinite(factor) || factor < 0)
        throw ArgumentError(detail::text("SlimPenalty: expected a factor of 0 or above, got ", factor));
}

DPTK_INLINE void SlimPenalty::gradients(TrainingRun& run) {
    if (run.status().epoch < until_epoch_) nn::add_slim_gradients(*graph_, run.parameters(), factor_);
}

}  // namespace DPTK_NAMESPACE
