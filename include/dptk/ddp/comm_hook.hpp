/// Communication hooks: how one bucket of gradients is summed over the ranks. DistributedDataParallel's own
/// way is an all-reduce; ddp/hooks/ has others.
#pragma once

#include <concepts>
#include <cstddef>
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

/// One bucket, as a hook gets it.
struct HookBucket {
    /// A gradient's place in the bucket.
    struct Gradient {
        /// Its parameter's number.
        std::size_t parameter = 0;
        std::vector<std::size_t> shape;  ///< Of the parameter.
        Buffer elements;                 ///< Those of this gradient alone.
    };

    /// In the order in which buckets leave; the same buckets in each step, but for the one behind which they
    /// are made anew.
    std::size_t index = 0;
    bool is_last = false;  ///< Whether it is the last one of its step.
    /// Counts from 0.
    std::size_t step = 0;
    /// What this rank's gradients have been multiplied with already: the sum over ranks is the average. Where
    /// they are in device memory, `device_weight` alone has it, and this is NaN.
    double weight = 1;
    /// All gradients, with zeros between them.
    Buffer elements;
    std::vector<Gradient> gradients;  ///< In the order in which they lie in the bucket.

    /// Where `elements` are in device memory: the stream that has them ready, and behind which they are taken
    /// as the sum. A hook puts its work there, and need not wait for it.
    StreamRef stream = {};
    /// One f64 in device memory.
    Buffer device_weight = {};
    /// Of dptk's own hooks; null in host memory.
    std::shared_ptr<detail::DeviceLane> lane = nullptr;
};

/// For one DistributedDataParallel at a time.
class CommHook {
  public:
    CommHook() = default;
    CommHook(const CommHook&) = delete;
    CommHook& operator=(const CommHook&) = delete;
    virtual ~CommHook() = default;

    /// Its name and options: what must be equal on all ranks.
    [[nodiscard]] virtual std::string description() const = 0;

    /// Replaces the bucket's elements by their sum over the ranks. Collective; blocks, on a thread of dptk's
    /// own while backward goes on, where the transport can do that and has a processor for it; else inside
    /// synchronize() or a mark. For device memory it is called where a bucket is full, with its device as the
    /// current one, and need not block. It must not call the DistributedDataParallel. `group` is the hook's
    /// alone. What it throws breaks the job.
    virtual void reduce(ProcessGroup& group, HookBucket& bucket) = 0;

    /// Whether it does the same on the device in all steps from now on, as in a CUDA graph, for which it is
    /// called once.
    [[nodiscard]] virtual bool is_capturable() const { return true; }
};

namespace detail {

class FunctionHook final : public CommHook {
  public:
    using Function = std::function<void(ProcessGroup&, HookBucket&)>;

    explicit FunctionHook(Function function);

    [[nodiscard]] std::string description() const override { return "a function of the program's"; }
    void reduce(ProcessGroup& group, HookBucket& bucket) override { function_(group, bucket); }

  private:
    Function function_;
};

}  // namespace detail

/// A hook of the program's own: reduce(group, bucket) as above.
template <class F>
    requires std::invocable<F&, ProcessGroup&, HookBucket&>
[[nodiscard]] std::shared_ptr<CommHook> comm_hook(F&& reduce) {
    return std::make_shared<detail::FunctionHook>(std::forward<F>(reduce));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/comm_hook.ipp"
#endif
