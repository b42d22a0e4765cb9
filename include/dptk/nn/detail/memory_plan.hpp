/// Plans the memory of a network's values and gradients: where each lies, so that memory is used again as
/// soon as its contents are not needed any more, and where an operation may work in place.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn::detail {

/// How an operation uses memory. Backward means the functions for gradients.
struct MemoryUse {
    bool is_view = false;       ///< The output is the first input: forward does nothing.
    bool keeps_inputs = false;  ///< Backward reads the inputs.
    bool keeps_output = false;  ///< Backward reads the output.
    /// Forward may write its output over one of the first inputs, as many as this number.
    std::size_t overwritable_inputs = 0;
    /// The gradient of each input is the output's gradient: backward does nothing.
    bool passes_gradient = false;
    /// Backward may write the gradient of the first input over the output's gradient.
    bool can_overwrite_gradient = false;
};

/// When an operation needs a workspace.
enum class WorkspaceUse {
    forward,   ///< In forward.
    backward,  ///< In backward.
    kept       ///< From forward to backward.
};

/// An operation, as far as its memory is concerned. Inputs are indices of operations before it.
struct MemoryNode {
    struct Workspace {
        std::size_t bytes = 0;
        WorkspaceUse use = WorkspaceUse::forward;
    };

    std::vector<std::size_t> inputs;
    MemoryUse use;
    std::size_t output_bytes = 0;
    std::vector<std::size_t> gradient_bytes;  ///< Of each input's gradient.
    std::vector<Workspace> workspaces;
};

/// Offsets into one piece of memory. Operation 0 is the input, the last one the output.
struct MemoryPlan {
    /// Instead of an offset: the memory of the network's input, or of the gradient of its output.
    static constexpr std::size_t external = std::numeric_limits<std::size_t>::max();

    /// Where an operation writes the gradient of an input. If other operations have written one before, the
    /// sum of `previous` and `offset` then goes to `sum`.
    struct Contribution {
        std::size_t offset = 0;
        bool is_added = false;
        std::size_t previous = 0;
        std::size_t sum = 0;
    };

    std::vector<std::size_t> values;     ///< Of each operation's output.
    std::vector<std::size_t> gradients;  ///< Of the complete gradient of each operation's output.
    std::vector<std::vector<Contribution>> contributions;  ///< By operation and input.
    std::vector<std::vector<std::size_t>> workspaces;      ///< By operation.
    std::size_t bytes = 0;
};

/// Where the network reads its input and the gradient of its output.
enum class TensorMemory {
    external,  ///< Where the caller has them.
    copied     ///< In memory of the plan.
};

/// Returns a plan for operations in the order of forward. Each operation's output, except the last one's, is
/// the input of another one.
[[nodiscard]] MemoryPlan plan_memory(const std::vector<MemoryNode>& nodes, TensorMemory tensors);

}  // namespace DPTK_NAMESPACE::nn::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/detail/memory_plan.ipp"
#endif
