/// A binary tree over numbered leaves whose form depends on their number alone, so that a sum over it has the
/// same bits however the leaves are spread over ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace dptk::detail {

/// The leaves [first, end) under one node.
struct TreeNode {
    std::size_t first = 0;
    std::size_t end = 0;

    friend bool operator==(const TreeNode&, const TreeNode&) = default;

    [[nodiscard]] bool is_leaf() const noexcept { return end - first == 1; }

    /// Where its right child begins: the left one has the largest power of two of leaves that leaves some.
    [[nodiscard]] std::size_t middle() const noexcept { return first + std::bit_floor(end - first - 1); }
    [[nodiscard]] TreeNode left() const noexcept { return {first, middle()}; }
    [[nodiscard]] TreeNode right() const noexcept { return {middle(), end}; }

    [[nodiscard]] bool holds(const TreeNode& other) const noexcept {
        return first <= other.first && other.end <= end;
    }
};

/// Whether `node` is one of the tree below `root`.
[[nodiscard]] inline bool is_node_below(TreeNode root, const TreeNode& node) noexcept {
    while (root != node) {
        if (root.is_leaf()) return false;
        if (root.left().holds(node)) {
            root = root.left();
        } else if (root.right().holds(node)) {
            root = root.right();
        } else {
            return false;
        }
    }
    return true;
}

/// The largest nodes below `root` that have no other leaves than those in `range`, from left to right.
inline void append_cover(const TreeNode& root, const TreeNode& range, std::vector<TreeNode>& cover) {
    if (root.end <= range.first || range.end <= root.first) return;
    if (range.holds(root)) return cover.push_back(root);
    append_cover(root.left(), range, cover);
    append_cover(root.right(), range, cover);
}

}  // namespace dptk::detail
