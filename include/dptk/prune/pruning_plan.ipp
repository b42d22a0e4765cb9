#pragma once

#include "dptk/prune/pruning_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/detail/network_structure.hpp"

namespace DPTK_NAMESPACE::nn::detail {

using dptk::detail::text;

DPTK_INLINE void check_options(const PruningOptions& options) {
    const auto require = [](bool holds, std::string_view expected, const auto& found) {
        if (!holds) throw ArgumentError(text("PruningOptions: expected ", expected, ", found ", found));
    };
    require(options.ratio >= 0 && options.ratio < 1, "a ratio in [0, 1)", options.ratio);
    require(options.min_channels > 0, "min_channels above 0", options.min_channels);
    require(options.multiple_of > 0, "multiple_of above 0", options.multiple_of);
    require(options.scope == PruningScope::group || options.score == FilterScore::slim,
            "FilterScore::slim for PruningScope::network", "another score");
}

DPTK_INLINE void require_prunable(const std::vector<ChannelGroup>& groups) {
    if (dptk::detail::any_of(groups, [](const ChannelGroup& group) { return group.is_prunable(); })) return;
    std::string reasons;
    for (const ChannelGroup& group : groups)
        if (!group.convolutions.empty()) reasons += text(reasons.empty() ? ": " : ", ", group.reason_to_keep);
    throw ArgumentError(text("plan_pruning: expected a graph with channels that may be pruned, found none",
                             reasons.empty() ? ": there is no Conv2d" : reasons));
}

/// Returns whether `name` matches a pattern in which `*` stands for any text.
[[nodiscard]] DPTK_INLINE bool matches(std::string_view pattern, std::string_view name) {
    const std::size_t star = pattern.find('*');
    if (star == std::string_view::npos) return pattern == name;
    if (!name.starts_with(pattern.substr(0, star))) return false;
    for (std::size_t end = star; end <= name.size(); ++end)
        if (matches(pattern.substr(star + 1), name.substr(end))) return true;
    return false;
}

/// Returns the number of characters to insert, remove or replace (Levenshtein 1966).
[[nodiscard]] DPTK_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
        }
    }
    return row.back();
}

/// Keeps all channels of the groups in which a convolution's name matches one of the patterns.
DPTK_INLINE void skip_groups(const Graph& graph, const std::vector<std::string>& patterns,
                             std::vector<ChannelGroup>& groups) {
    for (const std::string& pattern : patterns) {
        bool has_match = false;
        std::string_view closest;
        std::size_t least = std::numeric_limits<std::size_t>::max();
        for (ChannelGroup& group : groups) {
            for (const std::size_t conv : group.convolutions) {
                const std::string& name = graph.nodes()[conv].name;
                if (matches(pattern, name)) {
                    has_match = true;
                    if (group.is_prunable()) group.reason_to_keep = text('"', name, "\" is skipped");
                } else if (const std::size_t distance = edit_distance(pattern, name); distance < least) {
                    least = distance;
                    closest = name;
                }
            }
        }
        if (!has_match)
            throw ArgumentError(text("PruningOptions: expected names of Conv2d in skip, found \"", pattern,
                                     "\": the closest name is \"", closest, '"'));
    }
}

/// Returns the index of each operation's first parameter.
[[nodiscard]] DPTK_INLINE std::vector<std::size_t> first_parameters(const Graph& graph) {
    std::vector<std::size_t> first{0};
    for (const GraphNode& node : graph.nodes())
        first.push_back(first.back() + parameters_of(node.operation, graph.input_shapes(node)).size());
    return first;
}

/// A channel, and what it is compared by.
struct RankedChannel {
    double score;
    std::size_t group, channel;
};

/// The channels of groups, with the best one first.
[[nodiscard]] DPTK_INLINE std::vector<RankedChannel> rank_channels(
    const std::vector<std::vector<double>>& scores, const std::vector<std::size_t>& groups) {
    std::vector<RankedChannel> ranked;
    for (const std::size_t group : groups) {
        for (std::size_t channel = 0; channel < scores[group].size(); ++channel)
            ranked.push_back({scores[group][channel], group, channel});
    }
    dptk::detail::sort(ranked, [](const RankedChannel& a, const RankedChannel& b) {
        return std::tuple(-a.score, a.group, a.channel) < std::tuple(-b.score, b.group, b.channel);
    });
    return ranked;
}

/// Returns the scores of all channels by group: zeros if they are not prunable.
[[nodiscard]] DPTK_INLINE std::vector<std::vector<double>> score_channels(
    const Graph& graph, const std::vector<ChannelGroup>& groups, FilterScore score,
    const ReadParameter& read) {
    const std::vector<std::size_t> first = first_parameters(graph);
    std::vector<std::vector<double>> all;
    for (const ChannelGroup& group : groups) {
        std::vector<double>& sums = all.emplace_back(group.channels);
        if (!group.is_prunable()) continue;
        const auto& nodes = score == FilterScore::slim ? group.norms : group.convolutions;
        for (const std::size_t node : nodes) {
            const std::vector<double> scores = filter_scores(score, read(first[node]), group.channels);
            for (std::size_t channel = 0; channel < sums.size(); ++channel) {
                if (!std::isfinite(scores[channel]))
                    throw ArgumentError(text("plan_pruning: expected finite weights of ",
                                             label_of(graph, node), ", found ", scores[channel],
                                             " as score of channel ", channel));
                sums[channel] += scores[channel] / static_cast<double>(nodes.size());
            }
        }
    }
    return all;
}

/// Returns how many of `count` channels to prune.
[[nodiscard]] DPTK_INLINE std::size_t pruned_count(double ratio, std::size_t count) {
    constexpr double rounding_error = 1e-9;  // of 0.29 · 100, for example, which is less than 29
    return static_cast<std::size_t>(ratio * static_cast<double>(count) + rounding_error);
}

/// Returns how many channels of each group remain.
[[nodiscard]] DPTK_INLINE std::vector<std::size_t> remaining_counts(
    const std::vector<ChannelGroup>& groups, const std::vector<std::vector<double>>& scores,
    const PruningOptions& options) {
    std::vector<std::size_t> counts, prunable;
    for (const ChannelGroup& group : groups) {
        if (group.is_prunable()) prunable.push_back(counts.size());
        counts.push_back(group.channels);
    }
    if (options.scope == PruningScope::network) {
        const std::vector<RankedChannel> ranked = rank_channels(scores, prunable);
        const std::size_t pruned = pruned_count(options.ratio, ranked.size());
        for (std::size_t i = ranked.size() - pruned; i < ranked.size(); ++i) --counts[ranked[i].group];
    } else {
        for (const std::size_t group : prunable) counts[group] -= pruned_count(options.ratio, counts[group]);
    }
    for (const std::size_t group : prunable) {
        std::size_t& count = counts[group];
        count = std::min(std::max(count, options.min_channels), groups[group].channels);
        if (const std::size_t rest = count % options.multiple_of; rest != 0)
            count = std::min(count + (options.multiple_of - rest), groups[group].channels);
    }
    return counts;
}

DPTK_INLINE PruningPlan plan_pruning(const Graph& graph, const PruningOptions& options,
                                     const ReadParameter& read) {
    check_options(options);
    PruningPlan plan{channel_groups(graph), {}};
    std::vector<ChannelGroup>& groups = plan.channels.groups;
    require_prunable(groups);
    skip_groups(graph, options.skip, groups);
    for (ChannelGroup& group : groups)
        if (group.is_prunable() && group.norms.empty() && options.score == FilterScore::slim)
            group.reason_to_keep = "they have no batch norm";
    require_prunable(groups);
    const std::vector<std::vector<double>> scores = score_channels(graph, groups, options.score, read);
    const std::vector<std::size_t> counts = remaining_counts(groups, scores, options);
    for (std::size_t group = 0; group < groups.size(); ++group) {
        const std::vector<RankedChannel> ranked = rank_channels(scores, {group});
        std::vector<std::size_t>& kept = plan.kept.emplace_back();
        for (std::size_t i = 0; i < counts[group]; ++i) kept.push_back(ranked[i].channel);
        dptk::detail::sort(kept);
    }
    return plan;
}

}  // namespace DPTK_NAMESPACE::nn::detail
