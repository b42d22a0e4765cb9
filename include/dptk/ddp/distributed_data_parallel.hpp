/// DistributedDataParallel makes replicas train as one: at construction all get rank 0's values, and each
/// step's synchronize() leaves the average of all ranks' gradients in the program's own memory. The program's
/// optimizer then takes the same step everywhere.
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

namespace DPTK_NAMESPACE {

/// Containers that own their elements are kept by reference and must outlive this object; spans and tuples of
/// references are kept by value; an owning temporary does not compile. Addresses are read anew at each step;
/// the number of parameters and their sizes stay.
///
/// The constructors are collective and throw on all ranks alike: MismatchError where count, shape, number of
/// dimensions, dtype or options differ between ranks, naming the rank and the parameter; ArgumentError where
/// a rank's containers are unusable. The group must outlive this object.
class DistributedDataParallel {
  public:
    /// Values and gradients in two containers of the same structure: see ddp/parameters.hpp for what they may
    /// be.
    template <class Values, class Gradients>
        requires(!std::same_as<std::remove_cvref_t<Gradients>, DistributedDataParallelOptions>)
    DistributedDataParallel(ProcessGroup& group, Values&& values, Gradients&& gradients,
                            DistributedDataParallelOptions options = {})
        : DistributedDataParallel(
              group, ParameterSource(std::forward<Values>(values), std::forward<Gradients>(gradients)),
              options) {}

    /// A model with a for_each_parameter, or a container of pairs of value and gradient.
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    DistributedDataParallel(ProcessGroup& group, Model&& model, DistributedDataParallelOptions options = {})
        : DistributedDataParallel(group, ParameterSource(std::forward<Model>(model)), options) {}

    /// Of parameters that were found already.
    DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                            const DistributedDataParallelOptions& options = {});

    /// Begins a step. Optional; the first mark or synchronize() begins one by itself. Collective. Waits for
    /// rank 0 where the options have buffers, which all ranks then have from there, and else for nobody.
    /// Under Ready::marked, gradients stay where they are from here, or from the first mark, to
    /// synchronize().
    void begin_step() { reducer_->begin_step(); }

    /// Begins a step in which this rank has `sample_count` samples, 0 included: the average will weigh each
    /// rank's gradients by its samples, which equals one process on the concatenated batch. On all ranks or
    /// on none.
    void begin_step(std::size_t sample_count) { reducer_->begin_step(sample_count); }

    /// Under Ready::marked: gradient `i`, in registration order, is complete. From any thread.
    void mark_ready(std::size_t i) { reducer_->mark_ready(i); }

    /// The same of a gradient whose memory comes and goes with each backward (ParameterRef::lazy_gradient):
    /// it lies at `gradient` until synchronize() has returned.
    void mark_ready(std::size_t i, void* gradient) { reducer_->mark_ready(i, gradient); }

    /// Under Ready::marked: parameter `i` takes no part in this step on this rank, which contributes zeros.
    /// Where no rank uses it, the average is zeros, or under find_unused_parameters its gradient is left as
    /// it is.
    void mark_unused(std::size_t i) { reducer_->mark_unused(i); }

    /// Ends the step: on return the gradients are the average over ranks. Collective, blocks. Throws
    /// ArgumentError on all ranks for a mistake of this step on any of them; the next step may begin.
    ///
    /// Where all gradients are in device memory, and the program has dptk's kernels, the host goes on: they
    /// are the average for what the options' stream is given from now on, and what is thrown are mistakes of
    /// the step before. Over NCCL a step may then be captured into a CUDA graph, with that stream, once two
    /// steps have been made.
    void synchronize() { reducer_->synchronize(); }

    /// Throws ArgumentError on all ranks for mistakes of the steps so far that synchronize() has not told of:
    /// on devices, those of the last step, and of steps of a graph. Collective, blocks until they are over.
    void check() { reducer_->check(); }

    /// begin_step(sample_count) and synchronize() in one, for Ready::at_synchronize.
    void synchronize(std::size_t sample_count) { reducer_->synchronize(sample_count); }

    /// While the result lives, steps and marks do nothing, and the program's gradients add up where they are,
    /// if it does not set them to zero. The next step averages these sums over the ranks. Throws
    /// ArgumentError in the middle of a step.
    [[nodiscard]] detail::GradientReducer::NoSync no_sync() {
        return detail::GradientReducer::NoSync(*reducer_);
    }

    /// Takes the gradients of a micro-batch of `sample_count` samples, each the mean over them, into sums of
    /// dptk's own, and sets them to zero. The next step averages over these samples as well, so that
    /// micro-batches equal one large batch: the last one may be accumulated too, and then synchronize() be
    /// called, or it is the step's own, by begin_step(n) or synchronize(n). Does not communicate; ranks may
    /// accumulate unequally often. Sums are kept in f32, and in f64 for f64.
    void accumulate(std::size_t sample_count) { reducer_->accumulate(sample_count); }

    /// synchronize() of a rank that has run out of samples while others have not: see Join. Collective,
    /// blocks.
    void shadow() { reducer_->shadow(); }

    /// Of the steps that follow: see Join.
    void set_joined(const detail::JoinRound& round) { reducer_->set_joined(round); }

    /// Gives all ranks the values, and the buffers, of rank `root`. Collective, blocks.
    void broadcast_values(int root) { reducer_->broadcast_values(root); }

    /// From the next step on, buckets are summed by the hook: one of ddp/hooks/, or comm_hook(function). Null
    /// for the all-reduce of dptk's own. A hook is for one DistributedDataParallel. Throws MismatchError on
    /// all ranks where they set different ones, and ArgumentError in the middle of a step, or where gradients
    /// are in device memory that synchronize() waits for. Collective.
    void set_comm_hook(std::shared_ptr<CommHook> hook);

    /// Between synchronize() and the optimizer's step: multiplies the averages, where the norm of all of them
    /// together is above `max_norm`, so that it comes to that. As torch.nn.utils.clip_grad_norm_; `norm_type`
    /// is 1 or more, infinity takes the largest absolute value. The averages are the same on all ranks:
    /// nothing communicates. On one device nothing blocks, either, but value() of what is returned. Where the
    /// norm is infinite or not a number, all averages are not a number then. Throws ArgumentError for a
    /// norm_type below 1, in the middle of a step, where gradients are in device memory that synchronize()
    /// waits for, and for the first time in a step that is captured.
    GradientNorm clip_grad_norm(double max_norm, double norm_type = 2);

    /// The same for torch.nn.utils.clip_grad_value_: moves each average into [-limit, limit].
    void clip_grad_value(double limit);

    /// Divides the averages by `scale`: for losses that were multiplied by it, see LossScaler. Returns
    /// whether all were finite, the same on all ranks. Collective, blocks; not for a step that is captured.
    [[nodiscard]] bool unscale(double scale);

    /// The parameters in registration order.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept;

    /// The memory of gradient `i` in its bucket. A program that computes its gradients there, and gives that
    /// address as the gradient's, saves the copies in and out. Buckets then stay as they are. Throws
    /// ArgumentError for another element type, and for gradients in device memory.
    template <Element T>
    [[nodiscard]] std::span<T> gradient_memory(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer<T>(i, DeviceType::cpu);
        return {static_cast<T*>(buffer.data), buffer.count};
    }

    /// The same in device memory, and for that alone.
    template <Element T>
    [[nodiscard]] DeviceSpan<T> gradient_memory_on_device(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer<T>(i, DeviceType::cuda);
        return {static_cast<T*>(buffer.data), buffer.count, buffer.device};
    }

    /// The same of any type, wherever it lies.
    [[nodiscard]] Buffer gradient_buffer(std::size_t i) { return reducer_->gradient_memory(i); }

    /// Buckets, bytes and times of the steps so far, on this rank.
    [[nodiscard]] DdpStatistics statistics() const { return reducer_->statistics(); }

  protected:
    /// For what marks gradients by itself: it stays where it is when this object moves.
    [[nodiscard]] detail::GradientReducer& reducer() noexcept { return *reducer_; }

  private:
    template <Element T>
    [[nodiscard]] Buffer checked_gradient_buffer(std::size_t i, DeviceType type) {
        const Buffer buffer = reducer_->gradient_memory(i);
        if (buffer.dtype != dtype_of<T>) {
            throw ArgumentError(detail::text("gradient ", i, " is of ", dtype_name(buffer.dtype), ", not ",
                                             dtype_name(dtype_of<T>)));
        }
        if (buffer.device.type != type)
            throw ArgumentError(detail::text("gradient ", i, " is on ", device_name(buffer.device)));
        return buffer;
    }

    std::unique_ptr<detail::GradientReducer> reducer_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/distributed_data_parallel.ipp"
#endif
