/// Communication hooks (DDP comm hooks): a hook replaces the all-reduce that sums one bucket of gradients
/// over the ranks. dptk/ddp/hooks has ready-made hooks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

/// One bucket of gradients, as it is passed to a communication hook.
struct HookBucket {
    /// One gradient of the bucket.
    struct Gradient {
        /// The index of the parameter, in registration order.
        std::size_t parameter = 0;
        std::vector<std::size_t> shape;  ///< The shape of the parameter.
        Buffer elements;                 ///< The elements of this gradient only.
        std::uint64_t layout = 0;        ///< As in ParameterRef.
    };

    /// The bucket's index in the order of sending. It is the same in each step, until buckets are rebuilt.
    std::size_t index = 0;
    bool is_last = false;  ///< Whether this is the last bucket of the step.
    /// The number of the step, counted from 0.
    std::size_t step = 0;
    /// The factor by which this rank's gradients have already been multiplied, so that the sum over the
    /// ranks is the average. With LossReduction::sum gradients are not multiplied; this is then 1 / number of
    /// ranks, or 0 for a rank without samples. If the gradients are in device memory, only `device_weight`
    /// holds the factor, and `weight` is NaN.
    double weight = 1;
    /// All gradients, with padding zeros between them.
    Buffer elements;
    std::vector<Gradient> gradients;  ///< All gradients, in the order in which they lie in the bucket.

    /// The stream on which `elements` are ready, if they are in device memory. A hook enqueues its work on
    /// this stream and need not block; dptk reads the sum on the same stream.
    StreamRef stream = {};
    /// The weight of this rank's gradients, as one f64 in device memory.
    Buffer device_weight = {};
    /// dptk's stream, events and kernels for the bucket's device. Only for dptk's own hooks: the class may
    /// change in any version. Null if the bucket is in host memory.
    std::shared_ptr<detail::DeviceLane> lane = nullptr;
};

/// Base class of communication hooks. Each hook object is for one DistributedDataParallel.
class CommHook {
  public:
    CommHook() = default;
    CommHook(const CommHook&) = delete;
    CommHook& operator=(const CommHook&) = delete;
    virtual ~CommHook() = default;

    /// Returns the hook's name and options, which must be equal on all ranks.
    [[nodiscard]] virtual std::string description() const = 0;

    /// Replaces the bucket's elements with their sum over the ranks. Collective; blocks. dptk calls
    /// reduce() on a background thread, overlapped with backward, if the transport supports that and a
    /// processor is free for the thread; otherwise inside synchronize() or mark_ready(). If the elements
    /// are in device memory, dptk calls reduce() when the bucket is full, with the elements' device as the
    /// current CUDA device, and reduce() need not block. reduce() must not call the
    /// DistributedDataParallel. If the transport can duplicate groups, `group` is a duplicate that only
    /// this hook uses. An exception aborts the job.
    virtual void reduce(ProcessGroup& group, HookBucket& bucket) = 0;

    /// Returns whether the hook enqueues the same device work in all subsequent steps. A CUDA graph
    /// requires this: the hook is called once, when the graph is captured. False by default.
    [[nodiscard]] virtual bool is_capturable() const { return false; }

    /// Returns whether all ranks get the same sums in the next step, so that their values stay equal: see
    /// DistributedDataParallelOptions::verify_parameters_every. Must be equal on all ranks.
    [[nodiscard]] virtual bool keeps_values_equal() const { return true; }
};

namespace detail {

class FunctionHook final : public CommHook {
  public:
    using Function = std::function<void(ProcessGroup&, HookBucket&)>;

    explicit FunctionHook(Function function);

    [[nodiscard]] std::string description() const override { return "a user-defined function"; }
    void reduce(ProcessGroup& group, HookBucket& bucket) override { function_(group, bucket); }

  private:
    Function function_;
};

}  // namespace detail

/// Makes a communication hook from a function reduce(group, bucket) that does what CommHook::reduce()
/// documents. Steps with this hook cannot be captured into a CUDA graph.
template <class F>
    requires std::invocable<F&, ProcessGroup&, HookBucket&>
[[nodiscard]] std::shared_ptr<CommHook> comm_hook(F&& reduce) {
    return std::make_shared<detail::FunctionHook>(std::forward<F>(reduce));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/comm_hook.ipp"
#endif
