#pragma once

#include "dptk/nn/detail/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace DPTK_NAMESPACE::nn::detail {

/// Plans memory in two phases. The first one simulates a forward and a backward, and puts values and
/// gradients into blocks. The second one gives blocks with disjoint lifetimes the same memory.
class MemoryPlanner {
  public:
    MemoryPlanner(const std::vector<MemoryNode>& nodes, const MemoryPlanOptions& options)
        : nodes_(nodes), options_(options), count_(nodes.size()) {}

    MemoryPlan make() {
        find_uses();
        place_values();
        if (options_.has_backward) place_gradients();
        place_workspaces();
        assign_offsets();
        return std::move(plan_);
    }

  private:
    /// Memory from time `first` to time `last`, both included.
    struct Block {
        std::size_t bytes;
        std::size_t first;
        std::size_t last;
        bool is_external = false;
        std::vector<std::size_t> members = {};  ///< The operations whose value, or gradient, is in it.
        std::size_t offset = 0;
    };

    // The time of an operation's forward is its index; backward follows in the reverse order. At end_time(),
    // the caller reads the input's gradient.
    [[nodiscard]] std::size_t backward_time(std::size_t node) const { return 2 * count_ - 1 - node; }
    [[nodiscard]] std::size_t end_time() const { return 2 * count_; }

    /// Returns the last time at which a gradient is read.
    [[nodiscard]] std::size_t end_of_gradient(std::size_t node) const {
        return node == 0 ? end_time() : backward_time(node);
    }

    void find_uses() {
        last_use_.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            last_use_[i] = i;
            if (options_.has_backward && nodes_[i].use.keeps_output) last_use_[i] = backward_time(i);
            for (const std::size_t input : nodes_[i].inputs) {
                const bool is_kept = options_.has_backward && nodes_[i].use.keeps_inputs;
                last_use_[input] = std::max(last_use_[input], is_kept ? backward_time(i) : i);
            }
        }
    }

    std::size_t add_block(std::size_t bytes, std::size_t first, std::size_t last, bool is_external = false) {
        blocks_.push_back({bytes, first, last, is_external});
        return blocks_.size() - 1;
    }

    void add_member(std::size_t block, std::size_t node, std::size_t last) {
        blocks_[block].members.push_back(node);
        blocks_[block].last = std::max(blocks_[block].last, last);
    }

    /// Returns whether forward of operation `node` may write its output over the value `input`: nobody reads
    /// what is in that memory later, and the operation reads nothing else from it.
    [[nodiscard]] bool can_overwrite(std::size_t node, std::size_t input) const {
        const Block& block = blocks_[value_blocks_[input]];
        if (block.is_external || block.bytes < nodes_[node].output_bytes) return false;
        for (const std::size_t other : nodes_[node].inputs)
            if (other != input && value_blocks_[other] == value_blocks_[input]) return false;
        return std::all_of(block.members.begin(), block.members.end(),
                           [&](std::size_t member) { return last_use_[member] <= node; });
    }

    void place_values() {
        value_blocks_.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            const MemoryNode& node = nodes_[i];
            value_blocks_[i] = blocks_.size();
            if (node.use.is_view) {
                value_blocks_[i] = value_blocks_[node.inputs[0]];
            } else {
                const std::size_t candidates = std::min(node.use.overwritable_inputs, node.inputs.size());
                for (std::size_t k = 0; k < candidates; ++k) {
                    if (!can_overwrite(i, node.inputs[k])) continue;
                    value_blocks_[i] = value_blocks_[node.inputs[k]];
                    break;
                }
            }
            if (value_blocks_[i] == blocks_.size())
                add_block(node.output_bytes, i, i, i == 0 && options_.is_input_external);
            add_member(value_blocks_[i], i, last_use_[i]);
        }
    }

    /// Returns whether only the gradient of operation `node` is read in a block after the time `now`.
    [[nodiscard]] bool is_exclusive(std::size_t block, std::size_t node, std::size_t now) const {
        if (blocks_[block].is_external) return false;
        return std::all_of(
            blocks_[block].members.begin(), blocks_[block].members.end(),
            [&](std::size_t member) { return member == node || end_of_gradient(member) <= now; });
    }

    void place_gradients() {
        contributions_.resize(count_);
        gradient_blocks_.assign(count_, none);
        const std::size_t output = count_ - 1;
        gradient_blocks_[output] =
            add_block(nodes_[output].output_bytes, count_, count_, options_.is_gradient_external);
        add_member(gradient_blocks_[output], output, end_of_gradient(output));
        for (std::size_t i = count_; i-- > 1;) {
            for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k)
                contributions_[i].push_back(place_contribution(i, k));
        }
    }

    struct BlockContribution {
        std::size_t block;
        std::size_t previous = none;
        std::size_t sum = none;
    };

    BlockContribution place_contribution(std::size_t node, std::size_t k) {
        const MemoryUse& use = nodes_[node].use;
        const std::size_t input = nodes_[node].inputs[k], now = backward_time(node);
        const std::size_t own = gradient_blocks_[node], bytes = nodes_[node].gradient_bytes[k];
        const std::size_t previous = gradient_blocks_[input];
        BlockContribution made{own};
        if (previous == none) {
            const bool is_in_place = use.can_overwrite_gradient && k == 0 && is_exclusive(own, node, now) &&
                                     bytes <= blocks_[own].bytes;
            if (!use.passes_gradient && !is_in_place) made.block = add_block(bytes, now, now);
            add_member(made.block, input, end_of_gradient(input));
            gradient_blocks_[input] = made.block;
            return made;
        }
        if (!use.passes_gradient) made.block = add_block(bytes, now, now);
        made.previous = made.sum = previous;
        // The gradients of the next inputs may be the operation's own one, too.
        const bool is_needed = previous == own && k + 1 < nodes_[node].inputs.size();
        if (is_needed || !is_exclusive(previous, input, now)) {
            made.sum = add_block(blocks_[previous].bytes, now, now);
            add_member(made.sum, input, end_of_gradient(input));
        }
        gradient_blocks_[input] = made.sum;
        return made;
    }

    void place_workspaces() {
        workspace_blocks_.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            for (const MemoryNode::Workspace& workspace : nodes_[i].workspaces) {
                const bool is_backward = workspace.use == WorkspaceUse::backward;
                const bool is_forward = workspace.use == WorkspaceUse::forward || !options_.has_backward;
                workspace_blocks_[i].push_back(add_block(workspace.bytes, is_backward ? backward_time(i) : i,
                                                         is_forward ? i : backward_time(i)));
            }
        }
    }

    /// Places large blocks first, each at the lowest offset at which it does not meet another one.
    void assign_offsets() {
        constexpr std::size_t alignment = 64;
        std::vector<std::size_t> order(blocks_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return blocks_[a].bytes > blocks_[b].bytes; });
        std::vector<const Block*> placed;  // by offset
        for (const std::size_t index : order) {
            Block& block = blocks_[index];
            if (block.is_external) {
                block.offset = MemoryPlan::external;
                continue;
            }
            block.bytes = (block.bytes + alignment - 1) / alignment * alignment;
            for (const Block* other : placed) {
                const bool meets = block.first <= other->last && other->first <= block.last;
                if (!meets) continue;
                if (block.offset + block.bytes <= other->offset) break;
                block.offset = std::max(block.offset, other->offset + other->bytes);
            }
            placed.insert(
                std::upper_bound(placed.begin(), placed.end(), &block,
                                 [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                &block);
            plan_.bytes = std::max(plan_.bytes, block.offset + block.bytes);
        }
        const auto offsets = [&](const std::vector<std::size_t>& indices) {
            std::vector<std::size_t> all;
            for (const std::size_t index : indices) all.push_back(blocks_[index].offset);
            return all;
        };
        plan_.values = offsets(value_blocks_);
        for (const std::vector<std::size_t>& indices : workspace_blocks_)
            plan_.workspaces.push_back(offsets(indices));
        if (!options_.has_backward) return;
        plan_.gradients = offsets(gradient_blocks_);
        for (const std::vector<BlockContribution>& of_node : contributions_) {
            std::vector<MemoryPlan::Contribution>& all = plan_.contributions.emplace_back();
            for (const BlockContribution& made : of_node) {
                MemoryPlan::Contribution& contribution = all.emplace_back();
                contribution.offset = blocks_[made.block].offset;
                if (made.sum == none) continue;
                contribution.is_added = true;
                contribution.previous = blocks_[made.previous].offset;
                contribution.sum = blocks_[made.sum].offset;
            }
        }
    }

    static constexpr std::size_t none = MemoryPlan::external;

    const std::vector<MemoryNode>& nodes_;
    MemoryPlanOptions options_;
    std::size_t count_;
    std::vector<std::size_t> last_use_;  ///< By operation: when its output is last read.
    std::vector<Block> blocks_;
    std::vector<std::size_t> value_blocks_;
    std::vector<std::size_t> gradient_blocks_;
    std::vector<std::vector<BlockContribution>> contributions_;
    std::vector<std::vector<std::size_t>> workspace_blocks_;
    MemoryPlan plan_;
};

DPTK_INLINE MemoryPlan plan_memory(const std::vector<MemoryNode>& nodes, const MemoryPlanOptions& options) {
    return MemoryPlanner(nodes, options).make();
}

}  // namespace DPTK_NAMESPACE::nn::detail
