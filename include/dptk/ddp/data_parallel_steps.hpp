/// DataParallelSteps: the calls of a training step, which DistributedDataParallel and ShardedOptimizer have
/// in common. A step begins with begin_step(), marks gradients during backward under Ready::marked, and ends
/// with synchronize().
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/no_sync.hpp"
#include "dptk/ddp/parameters.hpp"
#include "dptk/ddp/statistics.hpp"

namespace DPTK_NAMESPACE {

class ProcessGroup;

namespace detail {

class GradientReducer;
struct JoinRound;

/// A container that contains one gradient, whose first element identifies the gradient.
template <class R>
concept GradientRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

}  // namespace detail

/// The steps of a data-parallel training. A parameter is identified by its index in registration order, which
/// for maps is the order of their keys. index_of() returns the index of a name.
class DataParallelSteps {
  public:
    ~DataParallelSteps();
    DataParallelSteps(DataParallelSteps&&) noexcept;
    DataParallelSteps& operator=(DataParallelSteps&&) noexcept;

    /// Begins a step. Collective. Optional: otherwise, the first mark_ready(), mark_unused() or
    /// synchronize() begins the step. If the options have buffers, blocks until this rank has received rank
    /// 0's buffers; otherwise does not wait for other ranks. Under Ready::marked, gradients must stay at
    /// their addresses from the beginning of the step until synchronize() returns.
    void begin_step();

    /// Begins a step in which this rank has `sample_count` samples, which may be 0. Collective. The average
    /// then weights each rank's gradients by its number of samples, so that the result equals that of one
    /// process on the concatenated batch. Either all ranks give a count, or none does.
    void begin_step(std::size_t sample_count);

    /// Reports that gradient `i` is complete. For Ready::marked. May be called from any thread. Mistakes in
    /// marking are reported by synchronize(), which throws on all ranks.
    void mark_ready(std::size_t i);

    /// Reports that the gradient that begins at this address is complete. For Ready::marked. May be called
    /// from any thread. If several parameters are tied, each call marks the next of them.
    template <class T>
        requires Element<std::remove_const_t<T>> || std::is_void_v<T>
    void mark_ready(T* gradient) {
        mark_ready_at(gradient);
    }

    /// Reports that the gradients in this container are complete: ddp.mark_ready(layer.weight_gradient). The
    /// container is whatever the constructor accepts: a gradient, a pointer to one, a pair of value and
    /// gradient, or a part of the model, whose gradients are all marked.
    template <class Gradients>
        requires(!std::convertible_to<Gradients, std::size_t>)
    void mark_ready(Gradients&& gradients) {
        using G = std::remove_cvref_t<Gradients>;
        auto& container = const_cast<G&>(std::as_const(gradients));  // only addresses are read
        if constexpr (detail::GradientRange<G&>) {
            mark_ready_at(std::ranges::data(container));
        } else {
            ParameterSink sink([this](const void* gradient) { mark_ready_at(gradient); });
            for_each_parameter(container, sink);
        }
    }

    /// Reports that lazy gradient `i` (ParameterRef::lazy_gradient) is complete. It must stay at the
    /// address `gradient` until synchronize() has returned.
    void mark_ready(std::size_t i, void* gradient);

    /// Reports that parameter `i` is unused in this step on this rank, which then contributes zeros. For
    /// Ready::marked. If no rank uses the parameter, the average is zero; with find_unused_parameters, its
    /// gradient is left unchanged instead.
    void mark_unused(std::size_t i);

    /// Returns the index of the parameter with this name, such as "layers[3].weight". Throws ArgumentError if
    /// there is none. Does not communicate.
    [[nodiscard]] std::size_t index_of(std::string_view name) const;

    /// Ends the step. Collective, blocks. On return, the averages over the ranks are available: in the
    /// program's gradients for DistributedDataParallel, and this rank's part of them for ShardedOptimizer,
    /// unless its steps are fused.
    /// Throws ArgumentError on all ranks if any rank made a mistake in this step; the next step may then
    /// begin.
    ///
    /// If all gradients are in device memory and the program has dptk's CUDA kernels, the host does not
    /// block: work that is enqueued on options.stream after this call reads the averages, and this call
    /// throws the errors of the previous step. With NCCL, such a step may be captured into a CUDA graph on
    /// that stream, after two steps have run without capture.
    void synchronize();

    /// Calls begin_step(sample_count) and synchronize(). Collective, blocks. For Ready::at_synchronize.
    void synchronize(std::size_t sample_count);

    /// Ends this rank's step without a result, after an exception in its backward, for example. Collective,
    /// together with the other ranks' synchronize(); blocks. The other ranks' synchronize() throws an
    /// ArgumentError that names this rank, unless they call cancel_step() as well; the next step may then
    /// begin on all ranks. Gradients are unspecified, and the sums of accumulate() are discarded. If steps
    /// run on devices, the error is thrown by the next synchronize() or check() of all ranks.
    void cancel_step();

    /// While the returned object exists, begin_step(), mark_ready(), mark_unused() and synchronize() do
    /// nothing, as under PyTorch's no_sync; calls with a sample count throw ArgumentError. Gradients
    /// accumulate in the program's own memory if the program does not set them to zero, and the next step
    /// averages the accumulated gradients over the ranks. Throws ArgumentError during a step. Does not
    /// communicate.
    [[nodiscard]] NoSync no_sync();

    /// Adds the gradients of a micro-batch, each the mean over `sample_count` samples, to internal sums,
    /// and sets the gradients to zero. The next step averages over these samples as well, so that
    /// micro-batches equal one large batch. For the last micro-batch, either call accumulate() and then
    /// synchronize(), or pass its sample count n to begin_step(n) or synchronize(n) instead. Does not
    /// communicate; ranks may call accumulate() different numbers of times. Sums are in f32, or in f64 for
    /// f64 gradients.
    void accumulate(std::size_t sample_count);

    /// Returns the parameters in registration order, with the addresses of the last step. With
    /// DistributedDataParallelOptions::reduce_in_f32, 16-bit gradients are replaced by their averages in f32.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept;

    /// Returns the host memory of gradient `i` in its bucket. A program that computes the gradient in this
    /// memory, and passes its address as that of the gradient, avoids the copies into and out of the
    /// bucket. Buckets are not rebuilt after this call. Throws ArgumentError for another element type, and
    /// for gradients in device memory.
    template <Element T>
    [[nodiscard]] std::span<T> gradient_memory(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer(i, dtype_of<T>, DeviceType::cpu);
        return {static_cast<T*>(buffer.data), buffer.count};
    }

    /// Returns the device memory of gradient `i` in its bucket. Throws ArgumentError for another element
    /// type, and for gradients in host memory.
    template <Element T>
    [[nodiscard]] DeviceSpan<T> gradient_memory_on_device(std::size_t i) {
        const Buffer buffer = checked_gradient_buffer(i, dtype_of<T>, DeviceType::cuda);
        return {static_cast<T*>(buffer.data), buffer.count, buffer.device};
    }

    /// Returns the memory of gradient `i` in its bucket, for any element type and device.
    [[nodiscard]] Buffer gradient_buffer(std::size_t i);

    /// Returns the owner of the bucket of gradient `i`. The memory exists as long as this object, or as a
    /// copy of the owner: a program that computes gradients there after this object's end keeps one.
    [[nodiscard]] std::shared_ptr<void> gradient_memory_owner(std::size_t i);

    /// Returns this rank's statistics: the sizes of the buckets, and the bytes and times of the steps so
    /// far.
    [[nodiscard]] DDPStatistics statistics() const;

  protected:
    /// For dptk's own classes.
    explicit DataParallelSteps(std::unique_ptr<detail::GradientReducer> reducer);

    /// Returns the reducer, for derived classes. Its address does not change when this object is moved.
    [[nodiscard]] detail::GradientReducer& reducer() const noexcept { return *reducer_; }

    /// Continues over a group that was formed again, with the values and buffers of rank `root`. Collective.
    void continue_over(ProcessGroup& group, int root);

  private:
    friend class Join;
    friend class ElasticState;

    void mark_ready_at(const void* gradient);

    [[nodiscard]] Buffer checked_gradient_buffer(std::size_t i, DType dtype, DeviceType type);

    std::unique_ptr<detail::GradientReducer> reducer_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/data_parallel_steps.ipp"
#endif
