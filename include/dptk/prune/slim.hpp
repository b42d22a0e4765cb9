/// Network slimming (Liu et al. 2017, https://arxiv.org/abs/1708.06519): training with an L1 penalty on the
/// weights of batch norms, which moves those of unimportant channels to 0. Then FilterScore::slim finds them.
#pragma once

#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// Adds `factor` · sign(weight), the gradient of `factor` · Σ|weight|, to the gradients of the weights of all
/// batch norms, after backward and synchronize(), and before the step of the optimizer. `parameters` are the
/// network's, such as those of DistributedDataParallel::parameters(), and may also be others: those of the
/// batch norms are found by name. Not collective. Throws ArgumentError if one is missing, is not f32 or f64,
/// or is not in host memory.
void add_slim_gradients(const Graph& graph, std::span<const ParameterRef> parameters, double factor);

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/prune/slim.ipp"
#endif
