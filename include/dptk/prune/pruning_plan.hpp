/// plan_pruning(), which decides from the values of a network which channels remain. Ranks with equal values
/// make equal plans, so that data-parallel training needs no communication for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/prune/channel_groups.hpp"
#include "dptk/prune/filter_scores.hpp"

namespace DPTK_NAMESPACE::nn {

/// The channels that are compared with each other.
enum class PruningScope : std::uint8_t {
    group,   ///< Those of a group: each group loses the same fraction.
    network  ///< Those of all groups: one threshold, as in Liu et al. 2017. Only for FilterScore::slim.
};

/// Options of plan_pruning().
struct PruningOptions {
    FilterScore score = FilterScore::l1;       ///< What makes a channel important.
    double ratio = 0.5;                        ///< The fraction of channels to prune, in [0, 1).
    PruningScope scope = PruningScope::group;  ///< What `ratio` is a fraction of.
    std::size_t min_channels = 1;              ///< At least so many channels of each group remain.
    /// The number of channels that remain is rounded up to a multiple of this, as long as there are so many.
    std::size_t multiple_of = 1;
    /// Names of Conv2d whose filters all remain, with those of their groups. `*` stands for any text, as in
    /// "layer1.*".
    std::vector<std::string> skip = {};
};

/// Which channels remain.
struct PruningPlan {
    ChannelGroups channels;                      ///< The groups of the graph's channels.
    std::vector<std::vector<std::size_t>> kept;  ///< By group: the channels that remain, ascending.

    friend bool operator==(const PruningPlan&, const PruningPlan&) = default;
};

namespace detail {

/// Returns the values of a parameter, row-major.
using ReadParameter = std::function<std::vector<double>(std::size_t)>;

[[nodiscard]] PruningPlan plan_pruning(const Graph& graph, const PruningOptions& options,
                                       const ReadParameter& read);

}  // namespace detail

/// Decides which channels remain: those with the largest scores, and of equal ones, those with the lowest
/// indices. The score of a channel is the sum of the scores of its filters, or for FilterScore::slim, of its
/// weights in batch norms, over all convolutions or batch norms of the channel's group, divided by their
/// number. All channels of a group without batch norms remain if the score is FilterScore::slim.
///
/// Depends only on the graph, the options and the values of the parameters. Not collective. Throws
/// ArgumentError if an option is invalid, if an entry of `skip` matches no Conv2d, if no channels may be
/// pruned, or if a score is not finite.
template <class Backend>
[[nodiscard]] PruningPlan plan_pruning(Network<Backend>& net, const PruningOptions& options = {}) {
    return detail::plan_pruning(net.graph(), options, [&](std::size_t i) {
        const auto values = net.parameter_values(i);
        return std::vector<double>(values.begin(), values.end());
    });
}

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/prune/pruning_plan.ipp"
#endif
