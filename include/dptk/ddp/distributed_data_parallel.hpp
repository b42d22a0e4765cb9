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

#include "dptk/ddp/gradient_reducer.hpp"

namespace dptk {

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

    DistributedDataParallel(ProcessGroup& group, ParameterSource source,
                            DistributedDataParallelOptions options = {})
        : reducer_(std::make_unique<GradientReducer>(group, std::move(source), options)) {
        for (const ParameterRef& parameter : reducer_->parameters()) {
            const Buffer value{parameter.value, parameter.count, parameter.dtype, parameter.device};
            reducer_->group().channel().run({.verb = Verb::broadcast, .input = value, .output = value});
        }
    }

    /// Begins a step. Optional; the first mark or synchronize() begins one by itself. Collective, does not
    /// wait. Under Ready::marked, gradients stay where they are from here, or from the first mark, to
    /// synchronize().
    void begin_step() { reducer_->begin_step(); }

    /// Begins a step in which this rank has `sample_count` samples, 0 included: the average will weigh each
    /// rank's gradients by its samples, which equals one process on the concatenated batch. On all ranks or
    /// on none.
    void begin_step(std::size_t sample_count) { reducer_->begin_step(sample_count); }

    /// Under Ready::marked: gradient `i`, in registration order, is complete. From any thread.
    void mark_ready(std::size_t i) { reducer_->mark_ready(i); }

    /// Under Ready::marked: parameter `i` takes no part in this step on this rank, which contributes zeros.
    /// Where no rank uses it, the average is zeros.
    void mark_unused(std::size_t i) { reducer_->mark_unused(i); }

    /// Ends the step: on return the gradients are the average over ranks. Collective, blocks. Throws
    /// ArgumentError on all ranks for a mistake of this step on any of them; the next step may begin.
    void synchronize() { reducer_->synchronize(); }

    /// begin_step(sample_count) and synchronize() in one, for Ready::at_synchronize.
    void synchronize(std::size_t sample_count) { reducer_->synchronize(sample_count); }

    /// The parameters in registration order.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept {
        return reducer_->parameters();
    }

    /// The memory of gradient `i` in its bucket. A program that computes its gradients there, and gives that
    /// address as the gradient's, saves the copies in and out. Throws ArgumentError for another element type.
    template <Element T>
    [[nodiscard]] std::span<T> gradient_memory(std::size_t i) const {
        const Buffer buffer = reducer_->gradient_memory(i);
        if (buffer.dtype != dtype_of<T>) {
            throw ArgumentError(detail::text("gradient ", i, " is of ", dtype_name(buffer.dtype), ", not ",
                                             dtype_name(dtype_of<T>)));
        }
        return {static_cast<T*>(buffer.data), buffer.count};
    }

  private:
    std::unique_ptr<GradientReducer> reducer_;
};

}  // namespace dptk
