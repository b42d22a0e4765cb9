/// DistributedDataParallel: data-parallel training with gradient averaging, like PyTorch's class of this
/// name. At construction all ranks receive rank 0's values. In each step, synchronize() writes the average
/// of all ranks' gradients into the program's own gradients, and the program's optimizer then does the same
/// step on every rank.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"
#include "dptk/ddp/no_sync.hpp"

namespace DPTK_NAMESPACE {

/// Averages gradients over the ranks of a group, so that the ranks' replicas of a model train as one. Each
/// step computes gradients locally and then calls synchronize(); gradients are sent in buckets, overlapped
/// with backward under Ready::marked.
///
/// Values and gradients stay in the program's containers. Containers that own their elements are kept by
/// reference and must outlive this object; spans and tuples of references are kept by value; owning
/// temporaries do not compile. Addresses are re-read at each step; the number of parameters and their sizes
/// must not change.
///
/// The constructors are collective and throw the same error on all ranks. They throw MismatchError if the
/// number of parameters, a name, a shape, a dtype or an option differs between ranks; its text names the
/// rank and the parameter. They throw ArgumentError if a rank's containers are unusable. The group must
/// outlive this object.
class DistributedDataParallel {
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

    /// Accepts a model with a for_each_parameter, or a container of pairs of value and gradient.
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    DistributedDataParallel(ProcessGroup& group, Model&& model, DistributedDataParallelOptions options = {})
        : DistributedDataParallel(group, ParameterSource(std::forward<Model>(model)), options) {}

    /// Accepts a ParameterSource, which finds the parameters.
    DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                            const DistributedDataParallelOptions& options = {});

    /// Begins a step. Optional: otherwise, the first mark_ready(), mark_unused() or synchronize() begins
    /// the step. Collective. If the options have buffers, blocks until this rank has received rank 0's
    /// buffers; otherwise does not wait for other ranks. Under Ready::marked, gradients must stay at their
    /// addresses from the beginning of the step until synchronize() returns.
    void begin_step() { reducer_->begin_step(); }

    /// Begins a step in which this rank has `sample_count` samples, which may be 0. The average then
    /// weights each rank's gradients by its number of samples, so that the result equals that of one
    /// process on the concatenated batch. Either all ranks give a count, or none does.
    void begin_step(std::size_t sample_count) { reducer_->begin_step(sample_count); }

    /// Reports that gradient `i`, in registration order, is complete. For Ready::marked. May be called from
    /// any thread.
    void mark_ready(std::size_t i) { reducer_->mark_ready(i); }

    /// Reports that lazy gradient `i` (ParameterRef::lazy_gradient) is complete. It must stay at the
    /// address `gradient` until synchronize() has returned.
    void mark_ready(std::size_t i, void* gradient) { reducer_->mark_ready(i, gradient); }

    /// Reports that parameter `i` is unused in this step on this rank, which then contributes zeros. For
    /// Ready::marked. If no rank uses the parameter, the average is zero; with find_unused_parameters, its
    /// gradient is left unchanged instead.
    void mark_unused(std::size_t i) { reducer_->mark_unused(i); }

    /// Ends the step: on return, the gradients are the average over the ranks. Collective, blocks. Throws
    /// ArgumentError on all ranks if any rank made a mistake in this step; the next step may then begin.
    ///
    /// If all gradients are in device memory and the program has dptk's CUDA kernels, the host does not
    /// block: work that is enqueued on options.stream after this call reads the averages, and this call
    /// throws the errors of the previous step. With NCCL, such a step may be captured into a CUDA graph on
    /// that stream, after two steps have run without capture.
    void synchronize() { reducer_->synchronize(); }

    /// Throws ArgumentError on all ranks for mistakes in earlier steps that synchronize() has not yet
    /// reported: those of the last step with gradients in device memory, and those of steps in CUDA graphs.
    /// Collective; blocks until these steps have finished.
    void check() { reducer_->check(); }

    /// Calls begin_step(sample_count) and synchronize(). For Ready::at_synchronize.
    void synchronize(std::size_t sample_count) { reducer_->synchronize(sample_count); }

    /// Ends this rank's step without a result, after an exception in its backward, for example. The other
    /// ranks' synchronize() throws an ArgumentError that names this rank, unless they call cancel_step() as
    /// well; the next step may then begin on all ranks. Gradients are unspecified, and the sums of
    /// accumulate() are discarded. If steps run on devices, the error is thrown by the next synchronize() or
    /// check() of all ranks. Collective, together with the other ranks' synchronize(); blocks.
    void cancel_step() { reducer_->cancel_step(); }

    /// While the returned object exists, begin_step(), mark_ready(), mark_unused() and synchronize() do
    /// nothing, as under PyTorch's no_sync; calls with a sample count throw ArgumentError. Gradients
    /// accumulate in the program's own memory if the program does not set them to zero, and the next step
    /// averages the accumulated gradients over the ranks. Throws ArgumentError during a step.
    [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

    /// Adds the gradients of a micro-batch, each the mean over `sample_count` samples, to internal sums,
    /// and sets the gradients to zero. The next step averages over these samples as well, so that
    /// micro-batches equal one large batch. For the last micro-batch, either call accumulate() and then
    /// synchronize(), or pass its sample count n to begin_step(n) or synchronize(n) instead. Does not
    /// communicate; ranks may call accumulate() different numbers of times. Sums are in f32, or in f64 for
    /// f64 gradients.
    void accumulate(std::size_t sample_count) { reducer_->accumulate(sample_count); }

    /// Takes part in a step of the other ranks after this rank has run out of samples: see Join.
    /// Collective, blocks.
    void shadow() { reducer_->shadow(); }

    /// Broadcasts the values and the buffers of rank `root` to all ranks. Collective, blocks.
    void broadcast_values(int root) { reducer_->broadcast_values(root); }

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

    /// Returns the parameters in registration order.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept;

    /// Returns the host memory of gradient `i` in its bucket. A program that computes the gradient in this
    /// memory, and passes its address as that of the gradient, avoids the copies into and out of the
    /// bucket. Buckets are not rebuilt after this call. Throws ArgumentError for another element type, and
    /// for gradients in device memory.
    template <Element T>
    [[nodiscard]] std::span<T> gradient_memory(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer<T>(i, DeviceType::cpu);
        return {static_cast<T*>(buffer.data), buffer.count};
    }

    /// Returns the device memory of gradient `i` in its bucket. Throws ArgumentError for another element
    /// type, and for gradients in host memory.
    template <Element T>
    [[nodiscard]] DeviceSpan<T> gradient_memory_on_device(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer<T>(i, DeviceType::cuda);
        return {static_cast<T*>(buffer.data), buffer.count, buffer.device};
    }

    /// Returns the memory of gradient `i` in its bucket, for any element type and device.
    [[nodiscard]] Buffer gradient_buffer(std::size_t i) { return reducer_->gradient_memory(i); }

    /// Returns the owner of the bucket of gradient `i`. The memory exists as long as this object, or as a
    /// copy of the owner: a program that computes gradients there after this object's end keeps one.
    [[nodiscard]] std::shared_ptr<void> gradient_memory_owner(std::size_t i) {
        return reducer_->bucket_memory(i);
    }

    /// Returns this rank's statistics: the sizes of the buckets, and the bytes and times of the steps so
    /// far.
    [[nodiscard]] DdpStatistics statistics() const { return reducer_->statistics(); }

  protected:
    /// Returns the reducer, for derived classes that mark gradients. The reducer's address does not change
    /// when this object is moved.
    [[nodiscard]] detail::GradientReducer& reducer() noexcept { return *reducer_; }

  private:
    friend class Join;

    /// Sets, for subsequent steps, how many ranks still have batches, which is the first of these ranks,
    /// and by how many ranks averages are divided. Join calls this function before each step.
    void set_joined(const detail::JoinRound& round) { reducer_->set_joined(round); }

    template <Element T>
    [[nodiscard]] Buffer checked_gradient_buffer(std::size_t i, DeviceType type) {
        const Buffer buffer = reducer_->gradient_memory(i);
        if (buffer.dtype != dtype_of<T>) {
            throw ArgumentError(detail::text("gradient ", i, " is of ", dtype_name(buffer.dtype),
                                             ", but memory of ", dtype_name(dtype_of<T>), " was requested"));
        }
        if (buffer.device.type != type)
            throw ArgumentError(detail::text("gradient ", i, " is on ", device_name(buffer.device),
                                             ": expected ", type == DeviceType::cpu ? "host" : "device",
                                             " memory"));
        return buffer;
    }

    std::unique_ptr<detail::GradientReducer> reducer_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/distributed_data_parallel.ipp"
#endif
