/// DistributedDataParallel: data-parallel training with gradient averaging, like PyTorch's class of this
/// name. At construction all ranks receive rank 0's values. In each step, synchronize() writes the average
/// of all ranks' gradients into the program's own gradients, and the program's optimizer then does the same
/// step on every rank. With one of dptk's optimizers, ShardedOptimizer does both, and is faster where ranks
/// share memory.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/data_parallel_steps.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

/// Averages gradients over the ranks of a group, so that the ranks' replicas of a model train as one. Each
/// step computes gradients locally and then calls synchronize(); gradients are sent in buckets, overlapped
/// with backward under Ready::marked.
///
/// Values and gradients stay in the program's containers. Containers that own their elements are kept by
/// reference and must outlive this object; spans and tuples of references are kept by value; owning
/// temporaries do not compile. Addresses are re-read at each step; the number of parameters and their sizes
/// must not change. If the gradients are in host memory, steps after the second one allocate no memory over
/// threads, shared memory, and MPI with MPI_THREAD_MULTIPLE.
///
/// The constructors are collective and throw the same error on all ranks. They throw MismatchError if the
/// number of parameters, a name, a shape, a dtype or an option differs between ranks; its text names the
/// rank and the parameter. They throw ArgumentError if a rank's containers are unusable. The group must
/// outlive this object.
class DistributedDataParallel : public DataParallelSteps {
  public:
    /// Accepts values and gradients in two containers of the same structure. ddp/parameters.hpp lists the
    /// supported containers.
    template <class Values, class Gradients>
        requires(!std::same_as<std::remove_cvref_t<Gradients>, DistributedDataParallelOptions>)
    DistributedDataParallel(ProcessGroup& group, Values&& values, Gradients&& gradients,
                            DistributedDataParallelOptions options = {})
        : DistributedDataParallel(
              group, ParameterSource(std::forward<Values>(values), std::forward<Gradients>(gradients)),
              options) {}

    /// Accepts a model with a for_each_parameter, or a container of pairs of value and gradient. If the model
    /// also has a for_each_buffer (see nn::Network), its buffers are those of the options, unless these have
    /// other ones.
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    DistributedDataParallel(ProcessGroup& group, Model&& model, DistributedDataParallelOptions options = {})
        : DistributedDataParallel(group, ParameterSource(std::forward<Model>(model)),
                                  detail::with_buffers_of(model, std::move(options))) {}

    /// Accepts a ParameterSource, which finds the parameters.
    DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                            const DistributedDataParallelOptions& options = {});

    /// Throws ArgumentError on all ranks for mistakes in earlier steps that synchronize() has not yet
    /// reported: those of the last step with gradients in device memory, and those of steps in CUDA graphs.
    /// Collective; blocks until these steps have finished.
    void check();

    /// Broadcasts the values and the buffers of rank `root` to all ranks. Collective, blocks.
    void broadcast_values(int root);

    /// Sets a communication hook that sums the buckets from the next step on: one from ddp/hooks/, or
    /// comm_hook(function). Null restores dptk's all-reduce. A hook is for one DistributedDataParallel.
    /// Throws MismatchError on all ranks if the ranks' hooks differ. Throws ArgumentError during a step, or
    /// if gradients are in device memory and synchronize() nevertheless blocks the host (see
    /// synchronize()). Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook);

    /// Scales all averages so that their total norm is at most `max_norm`. Call it between synchronize()
    /// and the optimizer's step. Equals torch.nn.utils.clip_grad_norm_, except that all averages become NaN
    /// if the norm is infinite or NaN. `norm_type` is the p of the p-norm, at least 1; infinity selects the
    /// largest absolute value. Does not communicate, since the averages are equal on all ranks. If all
    /// gradients are on one device, only value() of the result blocks. Throws ArgumentError during a step,
    /// if `norm_type` is below 1, if gradients are in device memory and synchronize() nevertheless blocks
    /// the host (see synchronize()), or if the first call is captured into a CUDA graph.
    GradientNorm clip_grad_norm(double max_norm, double norm_type = 2);

    /// Clamps each average to [-limit, limit], as torch.nn.utils.clip_grad_value_ does.
    void clip_grad_value(double limit);

    /// Divides the averages by `scale`, for losses that were multiplied by it: see LossScaler. Returns
    /// whether all were finite, with the same result on all ranks. Collective, blocks. Throws ArgumentError
    /// during a step, or if the call is captured into a CUDA graph.
    [[nodiscard]] bool unscale(double scale);
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/distributed_data_parallel.ipp"
#endif
