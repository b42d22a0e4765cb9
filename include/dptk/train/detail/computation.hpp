/// TrainerComputation, the part of a Trainer that depends on its model: loading batches, computing losses and
/// gradients, and updating the values. It is specialized for networks in host memory
/// (host_network_computation.hpp) and on GPUs (cuda/computation.hpp), and for models of programs
/// (model_computation.hpp).
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Its members:
/// - Scalar, the type of the optimizer's elements, is_on_host, and Totals, sums over this rank's samples;
/// - problem(options) and problem_of(dataset), why the model does not accept them; empty if it does;
/// - require_usable(parameter), which throws ArgumentError if the model cannot be trained with it;
/// - join(group), which prepares the model for training together with the other ranks, set_frozen(indices of
///   parameters), make_ddp(group, options), use_gradient_memory(steps), has_buffers() and is_synchronized();
/// - Batches<Dataset>, the batches of a pass over a dataset, both of which must outlive it: next() loads the
///   next batch for subsequent passes, and returns its number of samples, which may be 0;
/// - forward(batches, totals), which adds the loss and the number of correct predictions of that batch, and
///   backward(on_ready);
/// - outputs(samples), the outputs of the last forward(), which had that number of samples, without their
///   positions, and image(i), a sample of its batch: see TrainingRun;
/// - optimizer(), mode(), set_mode(), and set_pass(number), on which random numbers of the next pass depend;
/// - model(), elements(), upload() and download(), for ModelState.
template <class Model>
class TrainerComputation;

}  // namespace DPTK_NAMESPACE::detail
