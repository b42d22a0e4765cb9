/// A binary tree over numbered leaves whose form depends on their number alone, so that a sum over it has the
/// same bits however the leaves are spread over ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The leaves [first, end) under one node.
struct TreeNode {
    std::size_t first = 0;
    std::size_t end = 0;

    friend bool operator==(const TreeNode&, const TreeNode&) = default;

    [[nodiscard]] bool is_leaf() const noexcept { return end - first == 1; }

    /// Where its right child begins: the left one has the largest power of two of leaves that leaves some.
    [[nodiscard]] std::size_t middle() const noexcept;
    [[nodiscard]] TreeNode left() const noexcept { return {first, middle()}; }
    [[nodiscard]] TreeNode right() const noexcept { return {middle(), end}; }

    [[nodiscard]] bool holds(const TreeNode& other) const noexcept;
};

/// Whether `node` is one of the tree below `root`.
[[nodiscard]] bool is_node_below(TreeNode root, const TreeNode& node) noexcept;

/// The largest nodes below `root` that have no other leaves than those in `range`, from left to right.
void append_cover(const TreeNode& root, const TreeNode& range, std::vector<TreeNode>& cover);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/summation_tree.ipp"
#endif
