// Random graphs, whose plans are executed symbolically: each value and gradient must still be in its memory
// when it is read.
#include "dptk/nn/detail/memory_plan.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace dptk::nn::detail;

namespace {

constexpr std::size_t external = MemoryPlan::external;

/// What lies in each piece of 64 bytes.
class Memory {
  public:
    explicit Memory(std::size_t bytes) : pieces_(bytes / 64 + 1) {}

    void write(std::size_t offset, std::size_t bytes, const std::string& what) {
        if (offset == external) {
            external_ = what;
            return;
        }
        for (std::size_t piece = offset / 64; piece < (offset + bytes + 63) / 64; ++piece)
            pieces_.at(piece) = what;
    }

    [[nodiscard]] bool has(std::size_t offset, std::size_t bytes, const std::string& what) const {
        if (offset == external) return external_ == what;
        for (std::size_t piece = offset / 64; piece < (offset + bytes + 63) / 64; ++piece)
            if (pieces_.at(piece) != what) return false;
        return true;
    }

  private:
    std::vector<std::string> pieces_;
    std::string external_;
};

[[nodiscard]] std::vector<MemoryNode> random_nodes(std::mt19937& random) {
    const auto below = [&](std::size_t limit) { return random() % limit; };
    std::vector<MemoryNode> nodes(3 + below(12));
    std::vector<std::size_t> consumers(nodes.size());
    nodes[0].output_bytes = 64 * (1 + below(4));
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        MemoryNode& node = nodes[i];
        const std::size_t inputs = 1 + below(2);
        for (std::size_t k = 0; k < inputs; ++k) {
            // Mostly the last value, so that all outputs are used.
            const std::size_t input = k == 0 ? i - 1 : below(i);
            node.inputs.push_back(input);
            ++consumers[input];
        }
        node.output_bytes = 64 * (1 + below(4));
        if (below(2) == 0) node.output_bytes = nodes[i - 1].output_bytes;
        MemoryUse& use = node.use;
        use.is_view = inputs == 1 && below(5) == 0;
        if (use.is_view) node.output_bytes = nodes[i - 1].output_bytes;
        use.keeps_inputs = below(3) == 0;
        use.keeps_output = below(3) == 0;
        use.overwritable_inputs = use.keeps_inputs ? 0 : below(3);
        use.passes_gradient = node.output_bytes == nodes[node.inputs[0]].output_bytes &&
                              node.output_bytes == nodes[node.inputs.back()].output_bytes && below(2) == 0;
        use.can_overwrite_gradient = inputs == 1 && below(2) == 0;
        for (const std::size_t input : node.inputs) node.gradient_bytes.push_back(nodes[input].output_bytes);
        for (std::size_t w = below(3); w > 0; --w)
            node.workspaces.push_back({64 * (1 + below(3)), static_cast<WorkspaceUse>(below(3))});
    }
    return nodes;
}

/// Executes a plan, and checks what each operation reads.
void check(const std::vector<MemoryNode>& nodes, TensorMemory tensors) {
    const MemoryPlan plan = plan_memory(nodes, tensors);
    Memory memory(plan.bytes);
    // A view has the contents of its input.
    std::vector<std::string> value(nodes.size()), gradient(nodes.size());
    const auto reads = [&](std::size_t node) {
        CHECK(memory.has(plan.values[node], nodes[node].output_bytes, value[node]));
    };
    value[0] = "v0";
    memory.write(plan.values[0], nodes[0].output_bytes, value[0]);
    const auto write_workspaces = [&](std::size_t i, WorkspaceUse use) {
        for (std::size_t w = 0; w < nodes[i].workspaces.size(); ++w)
            if (nodes[i].workspaces[w].use == use)
                memory.write(plan.workspaces[i][w], nodes[i].workspaces[w].bytes,
                             "w" + std::to_string(i) + '.' + std::to_string(w));
    };
    for (std::size_t i = 1; i < nodes.size(); ++i) {
        for (const std::size_t input : nodes[i].inputs) reads(input);
        write_workspaces(i, WorkspaceUse::forward);
        write_workspaces(i, WorkspaceUse::kept);
        for (const std::size_t input : nodes[i].inputs) reads(input);  // not overwritten by a workspace
        value[i] = nodes[i].use.is_view ? value[nodes[i].inputs[0]] : "v" + std::to_string(i);
        if (nodes[i].use.is_view) CHECK(plan.values[i] == plan.values[nodes[i].inputs[0]]);
        memory.write(plan.values[i], nodes[i].output_bytes, value[i]);
    }
    reads(nodes.size() - 1);

    gradient.back() = "g" + std::to_string(nodes.size() - 1);
    Memory external_gradient(0);
    const auto write = [&](std::size_t offset, std::size_t bytes, const std::string& what) {
        (offset == external ? external_gradient : memory).write(offset, bytes, what);
    };
    const auto has = [&](std::size_t offset, std::size_t bytes, const std::string& what) {
        return (offset == external ? external_gradient : memory).has(offset, bytes, what);
    };
    write(plan.gradients.back(), nodes.back().output_bytes, gradient.back());
    for (std::size_t i = nodes.size(); i-- > 1;) {
        const MemoryNode& node = nodes[i];
        CHECK(has(plan.gradients[i], node.output_bytes, gradient[i]));
        write_workspaces(i, WorkspaceUse::backward);
        if (node.use.keeps_output) reads(i);
        for (const std::size_t input : node.inputs)
            if (node.use.keeps_inputs) reads(input);
        for (std::size_t w = 0; w < node.workspaces.size(); ++w)
            if (node.workspaces[w].use == WorkspaceUse::kept)
                CHECK(memory.has(plan.workspaces[i][w], node.workspaces[w].bytes,
                                 "w" + std::to_string(i) + '.' + std::to_string(w)));
        CHECK(has(plan.gradients[i], node.output_bytes, gradient[i]));
        std::vector<std::string> contributed;
        for (std::size_t k = 0; k < node.inputs.size(); ++k) {
            const MemoryPlan::Contribution& contribution = plan.contributions[i][k];
            if (node.use.passes_gradient) {
                CHECK(contribution.offset == plan.gradients[i]);
                contributed.push_back(gradient[i]);
            } else {
                contributed.push_back("c" + std::to_string(i) + '.' + std::to_string(k));
                CHECK(contribution.offset != external);
                memory.write(contribution.offset, node.gradient_bytes[k], contributed.back());
            }
        }
        for (std::size_t k = 0; k < node.inputs.size(); ++k) {
            const MemoryPlan::Contribution& contribution = plan.contributions[i][k];
            const std::size_t input = node.inputs[k], bytes = node.gradient_bytes[k];
            CHECK(has(contribution.offset, bytes, contributed[k]));
            if (!contribution.is_added) {
                gradient[input] = contributed[k];
                continue;
            }
            CHECK(has(contribution.previous, bytes, gradient[input]));
            CHECK(contribution.sum != external);
            gradient[input] += '+' + contributed[k];
            memory.write(contribution.sum, bytes, gradient[input]);
        }
    }
    CHECK(has(plan.gradients[0], nodes[0].output_bytes, gradient[0]));
}

}  // namespace

TEST_CASE("values, gradients and workspaces are in their memory until they are read, in random graphs") {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        CAPTURE(round);
        const std::vector<MemoryNode> nodes = random_nodes(random);
        check(nodes, TensorMemory::external);
        check(nodes, TensorMemory::copied);
    }
}

TEST_CASE("a row of operations needs memory for two values, or one if they work in place") {
    std::vector<MemoryNode> nodes(10);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].output_bytes = 640;
        if (i > 0) nodes[i].inputs = {i - 1};
        if (i > 0) nodes[i].gradient_bytes = {640};
    }
    CHECK(plan_memory(nodes, TensorMemory::external).bytes == 2 * 640);
    for (MemoryNode& node : nodes) {
        node.use.overwritable_inputs = 1;
        node.use.can_overwrite_gradient = true;
    }
    CHECK(plan_memory(nodes, TensorMemory::external).bytes == 640);
    for (MemoryNode& node : nodes) node.use.keeps_output = true;  // now nothing is overwritten
    CHECK(plan_memory(nodes, TensorMemory::external).bytes == 10 * 640);
}
