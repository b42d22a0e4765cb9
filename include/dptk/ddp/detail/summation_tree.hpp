/// Fixed summation tree: a binary tree over numbered leaves. Its shape depends only on the number of
/// leaves, so that a sum over the tree has the same bits for every distribution of the leaves over ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A node, given by the leaves [first, end) below it.
struct TreeNode {
    std::size_t first = 0;
    std::size_t end = 0;

    friend bool operator==(const TreeNode&, const TreeNode&) = default;

    [[nodiscard]] bool is_leaf() const noexcept { return end - first == 1; }

    /// Returns the first leaf of the right child. The number of leaves of the left child is the largest
    /// power of two that is less than the number of this node's leaves.
    [[nodiscard]] std::size_t middle() const noexcept;
    [[nodiscard]] TreeNode left() const noexcept { return {first, middle()}; }
    [[nodiscard]] TreeNode right() const noexcept { return {middle(), end}; }

    [[nodiscard]] bool contains(const TreeNode& other) const noexcept;
};

/// Returns whether `node` is a node of the tree below `root`.
[[nodiscard]] bool is_node_below(TreeNode root, const TreeNode& node) noexcept;

/// Appends the largest nodes below `root` that contain only leaves in `range`, from left to right.
void append_cover(const TreeNode& root, const TreeNode& range, std::vector<TreeNode>& cover);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/summation_tree.ipp"
#endif
