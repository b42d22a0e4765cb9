#pragma once

#include "dptk/nn/detail/memory_plan.hpp"

#include <algorithm>
#include <utility>

namespace DPTK_NAMESPACE::nn::detail {

/// Plans memory in two phases. The first one simulates a forward and a backward, and puts values and
/// gradients into blocks. The second one gives blocks with disjoint lifetimes the same memory.
class MemoryPlanner {
  public:
    MemoryPlanner(const std::vector<MemoryNode>& nodes, TensorMemory tensors)
        : nodes_(nodes), tensors_are_external_(tensors == TensorMemory::external), count_(nodes.size()) {}

    MemoryPlan make() {
        find_uses();
        place_values();
        place_gradients();
        place_workspaces();
        assign_offsets();
        replace_blocks_by_offsets();
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

    // The time of an operation's forward is its index; backward follows in the reverse order. At the end,
    // the caller reads the input's gradient.
    [[nodiscard]] std::size_t backward_time(std::size_t node) const { return 2 * count_ - 1 - node; }

    /// Returns the last time at which a gradient is read.
    [[nodiscard]] std::size_t end_of_gradient(std::size_t node) const {
        return node == 0 ? 2 * count_ : backward_time(node);
    }

    void find_uses() {
        last_use_.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            last_use_[i] = nodes_[i].use.keeps_output ? backward_time(i) : i;
            for (const std::size_t input : nodes_[i].inputs)
                last_use_[input] =
                    std::max(last_use_[input], nodes_[i].use.keeps_inputs ? backward_time(i) : i);
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
        const Block& block = blocks_[plan_.values[input]];
        if (block.is_external || block.bytes < nodes_[node].output_bytes) return false;
        for (const std::size_t other : nodes_[node].inputs)
            if (other != input && plan_.values[other] == plan_.values[input]) return false;
        return std::all_of(block.members.begin(), block.members.end(),
                           [&](std::size_t member) { return last_use_[member] <= node; });
    }

    void place_values() {
        plan_.values.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            const MemoryNode& node = nodes_[i];
            plan_.values[i] = blocks_.size();
            if (node.use.is_view) {
                plan_.values[i] = plan_.values[node.inputs[0]];
            } else {
                const std::size_t candidates = std::min(node.use.overwritable_inputs, node.inputs.size());
                for (std::size_t k = 0; k < candidates; ++k) {
                    if (!can_overwrite(i, node.inputs[k])) continue;
                    plan_.values[i] = plan_.values[node.inputs[k]];
                    break;
                }
            }
            if (plan_.values[i] == blocks_.size())
                add_block(node.output_bytes, i, i, i == 0 && tensors_are_external_);
            add_member(plan_.values[i], i, last_use_[i]);
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
        plan_.contributions.resize(count_);
        plan_.gradients.assign(count_, none);
        const std::size_t output = count_ - 1;
        plan_.gradients[output] =
            add_block(nodes_[output].output_bytes, count_, count_, tensors_are_external_);
        add_member(plan_.gradients[output], output, end_of_gradient(output));
        for (std::size_t i = count_; i-- > 1;) {
            for (std::size_t k = 0; k < nodes_[i].inputs.size(); ++k)
                plan_.contributions[i].push_back(place_contribution(i, k));
        }
    }

    MemoryPlan::Contribution place_contribution(std::size_t node, std::size_t k) {
        const MemoryUse& use = nodes_[node].use;
        const std::size_t input = nodes_[node].inputs[k], now = backward_time(node);
        const std::size_t own = plan_.gradients[node], bytes = nodes_[node].gradient_bytes[k];
        const std::size_t previous = plan_.gradients[input];
        MemoryPlan::Contribution made{own};
        if (previous == none) {
            const bool is_in_place = use.can_overwrite_gradient && k == 0 && is_exclusive(own, node, now) &&
                                     bytes <= blocks_[own].bytes;
            if (!use.passes_gradient && !is_in_place) made.offset = add_block(bytes, now, now);
            add_member(made.offset, input, end_of_gradient(input));
            plan_.gradients[input] = made.offset;
            return made;
        }
        if (!use.passes_gradient) made.offset = add_block(bytes, now, now);
        made.is_added = true;
        made.previous = made.sum = previous;
        // The gradients of the next inputs may be the operation's own one, too.
        const bool is_needed = previous == own && k + 1 < nodes_[node].inputs.size();
        if (is_needed || !is_exclusive(previous, input, now)) {
            made.sum = add_block(blocks_[previous].bytes, now, now);
            add_member(made.sum, input, end_of_gradient(input));
        }
        plan_.gradients[input] = made.sum;
        return made;
    }

    void place_workspaces() {
        plan_.workspaces.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            for (const MemoryNode::Workspace& workspace : nodes_[i].workspaces) {
                const std::size_t first = workspace.use == WorkspaceUse::backward ? backward_time(i) : i;
                const std::size_t last = workspace.use == WorkspaceUse::forward ? i : backward_time(i);
                plan_.workspaces[i].push_back(add_block(workspace.bytes, first, last));
            }
        }
    }

    /// Places large blocks first, each at the lowest offset at which it does not meet another one.
    void assign_offsets() {
        constexpr std::size_t alignment = 64;
        std::vector<Block*> order;
        for (Block& block : blocks_) order.push_back(&block);
        std::stable_sort(order.begin(), order.end(),
                         [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
        std::vector<const Block*> placed;  // by offset
        for (Block* const block : order) {
            if (block->is_external) {
                block->offset = MemoryPlan::external;
                continue;
            }
            block->bytes = (block->bytes + alignment - 1) / alignment * alignment;
            for (const Block* other : placed) {
                const bool meets = block->first <= other->last && other->first <= block->last;
                if (!meets) continue;
                if (block->offset + block->bytes <= other->offset) break;
                block->offset = std::max(block->offset, other->offset + other->bytes);
            }
            placed.insert(
                std::upper_bound(placed.begin(), placed.end(), block,
                                 [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                block);
            plan_.bytes = std::max(plan_.bytes, block->offset + block->bytes);
        }
    }

    void replace_blocks_by_offsets() {
        for (std::size_t& place : plan_.values) place = blocks_[place].offset;
        for (std::size_t& place : plan_.gradients) place = blocks_[place].offset;
        for (std::vector<std::size_t>& of_node : plan_.workspaces)
            for (std::size_t& place : of_node) place = blocks_[place].offset;
        for (std::vector<MemoryPlan::Contribution>& of_node : plan_.contributions) {
            for (MemoryPlan::Contribution& made : of_node)
                for (std::size_t* const place : {&made.offset, &made.previous, &made.sum})
                    *place = blocks_[*place].offset;
        }
    }

    static constexpr std::size_t none = MemoryPlan::external;

    const std::vector<MemoryNode>& nodes_;
    bool tensors_are_external_;
    std::size_t count_;
    std::vector<std::size_t> last_use_;  ///< By operation: when its output is last read.
    std::vector<Block> blocks_;
    MemoryPlan plan_;  // at first with indices of blocks instead of offsets
};

DPTK_INLINE MemoryPlan plan_memory(const std::vector<MemoryNode>& nodes, TensorMemory tensors) {
    return MemoryPlanner(nodes, tensors).make();
}

}  // namespace DPTK_NAMESPACE::nn::detail
