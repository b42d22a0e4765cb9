/// What a Network derives from its Graph, whatever the backend.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// Whether a ReLU is computed together with the operation before it, whose only consumer it is.
enum class FusedReLU {
    none,
    follows,  ///< The operation also computes the ReLU that follows it.
    is_done   ///< The operation is that ReLU.
};

}  // namespace DPTK_NAMESPACE::nn

namespace DPTK_NAMESPACE::nn::detail {

struct NetworkStructure {
    std::vector<ParameterSpec> parameters;    ///< Those of Graph::parameters().
    std::vector<std::size_t> parameters_end;  ///< By operation: the index after its last parameter.
    std::vector<bool> trains;                 ///< By operation: whether it has parameters that train.
    std::vector<bool> trains_inputs;          ///< By operation: whether its inputs depend on such parameters.
    std::vector<bool> feeds_only_linear;      ///< By operation: whether all consumers are Linear.
    std::vector<FusedReLU> relu;              ///< By operation.
    std::vector<std::string> labels;          ///< By operation: what errors call it.
};

/// Returns what errors call an operation: "fc" (Linear), or operation 3 (ReLU).
[[nodiscard]] std::string label_of(const Graph& graph, std::size_t node);

/// `fuses_relu` says whether a ReLU can be fused with an operation. Throws ArgumentError if the graph is
/// empty, or if an output is not used.
[[nodiscard]] NetworkStructure structure_of(const Graph& graph,
                                            const std::function<bool(const Operation&)>& fuses_relu);

/// Sets which operations train, if the parameters with `is_frozen` do not.
void set_frozen(NetworkStructure& structure, const Graph& graph, const std::vector<bool>& is_frozen);

}  // namespace DPTK_NAMESPACE::nn::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/detail/network_structure.ipp"
#endif
