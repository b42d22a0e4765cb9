/// Host functions that launch the kernels of the fused optimizers; optimizer_kernels.cu has the kernels. Each
/// function enqueues its work on a stream and returns. Pointers are to device memory.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

/// A parameter and its optimizer state, all f32. `first` and `second` are the state arrays, in the
/// optimizer's order.
struct OptimizerTensor {
    float* value = nullptr;
    const float* gradient = nullptr;
    float* first = nullptr;
    float* second = nullptr;
    std::size_t count = 0;
};

/// The step number and the learning rate of an optimizer. They are in device memory, so that they may change
/// between launches of a CUDA graph.
struct OptimizerProgress {
    /// The number of the next step, counted from 1.
    long long step = 1;
    double lr = 0;
};

struct SGDStep {
    float momentum = 0;
    float weight_decay = 0;
};

/// Performs an SGD step, then increments progress->step. `first` of a tensor is its momentum buffer, or null
/// if the momentum is 0.
void sgd_step(std::span<const OptimizerTensor> tensors, const SGDStep& options, OptimizerProgress* progress,
              StreamRef stream);

struct AdamStep {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    /// Whether weight decay is applied to the values, as in AdamW.
    bool is_decoupled = false;
};

/// Performs an Adam or AdamW step, then increments progress->step.
void adam_step(std::span<const OptimizerTensor> tensors, const AdamStep& options, OptimizerProgress* progress,
               StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda::detail
