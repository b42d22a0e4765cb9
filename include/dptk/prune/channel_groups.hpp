/// Which channels of a Graph must be pruned together. A residual sum needs equally many channels of both
/// inputs, and a depthwise convolution has as many filters as channels, so that a channel is removed from all
/// of these operations, or from none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// Operations whose outputs have the same channels.
struct ChannelGroup {
    std::size_t channels = 0;               ///< The number of channels.
    std::vector<std::size_t> convolutions;  ///< The indices of the operations whose filters they are.
    std::vector<std::size_t> norms;         ///< The indices of the BatchNorm2d that normalize them.
    std::string reason_to_keep;             ///< Why no channel may be pruned; empty if channels may be.

    /// Returns whether channels of the group may be pruned.
    [[nodiscard]] bool is_prunable() const noexcept { return reason_to_keep.empty(); }

    friend bool operator==(const ChannelGroup&, const ChannelGroup&) = default;
};

/// The channels of an operation's output.
struct NodeChannels {
    std::size_t group;   ///< The index of their group.
    std::size_t repeat;  ///< Consecutive elements for each channel: the pixels after Flatten, otherwise 1.

    friend bool operator==(const NodeChannels&, const NodeChannels&) = default;
};

/// The channels of a graph.
struct ChannelGroups {
    std::vector<ChannelGroup> groups;  ///< In the order of their first operation.
    std::vector<NodeChannels> nodes;   ///< By operation.

    friend bool operator==(const ChannelGroups&, const ChannelGroups&) = default;
};

/// Returns the groups of a graph's channels. In a group that is prunable, a channel whose filters, biases and
/// batch norms are 0 is 0 wherever a Conv2d or Linear uses it, so that they compute the same without it.
///
/// Add, Multiply and a depthwise Conv2d (as many groups as input and output channels) have the channels of
/// their inputs, as have batch norms, activations, pools, Dropout and Flatten. These channels are kept:
/// - those of the graph's input and output, and the outputs of Linear
/// - those that reach or leave a Conv2d with other groups, Softmax, RadixSum or Custom
/// - those that reach a Conv2d or Linear through Sigmoid, since Sigmoid(0) is not 0, except through a product
///   or a batch norm that is 0
/// - those of an Add or Multiply whose inputs do not have the same number of channels, or not in the same
///   order, such as a Multiply that repeats one channel
[[nodiscard]] ChannelGroups channel_groups(const Graph& graph);

namespace detail {

/// Returns whether a convolution has one filter for each channel of its input, of several.
[[nodiscard]] bool is_depthwise(const Conv2d& conv, std::size_t input_channels) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/prune/channel_groups.ipp"
#endif
