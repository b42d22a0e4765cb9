#pragma once

#include "dptk/ddp/detail/summation_tree.hpp"

#include <bit>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::size_t TreeNode::middle() const noexcept {
    return first + std::bit_floor(end - first - 1);
}

DPTK_INLINE bool TreeNode::contains(const TreeNode& other) const noexcept {
    return first <= other.first && other.end <= end;
}

DPTK_INLINE bool is_node_below(TreeNode root, const TreeNode& node) noexcept {
    while (root != node) {
        if (root.is_leaf()) return false;
        if (root.left().contains(node)) {
            root = root.left();
        } else if (root.right().contains(node)) {
            root = root.right();
        } else {
            return false;
        }
    }
    return true;
}

DPTK_INLINE void append_cover(const TreeNode& root, const TreeNode& range, std::vector<TreeNode>& cover) {
    if (root.end <= range.first || range.end <= root.first) return;
    if (range.contains(root)) return cover.push_back(root);
    append_cover(root.left(), range, cover);
    append_cover(root.right(), range, cover);
}

}  // namespace DPTK_NAMESPACE::detail
