/// A lane is a CUDA stream with its events and kernels, beside the user's stream. The work on a lane copies a
/// step's gradients to buckets, sums the buckets over the ranks, and copies the gradients back, without
/// blocking the host. This interface is for code that does not include CUDA's headers;
/// core/cuda/detail/device_lane.hpp implements it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_math.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// A gradient, `from`, and its elements in the bucket, `to`. The dtype of `to` is the bucket's.
struct LaneCopy {
    Buffer to;
    const void* from = nullptr;
};

/// The weight, factor / *divisor, that a rank's elements are multiplied by.
struct LaneWeight {
    double factor = 1;
    /// Points to an f64 in device memory, or is null for no divisor. If the divisor is 0, the weight is 0.
    const void* divisor = nullptr;
};

/// The lane of one device. Calls enqueue their work without waiting for it, except allocate(), read() and
/// has_failed_step(). Not thread-safe.
class DeviceLane {
  public:
    /// The indices of the words that all ranks sum at the beginning of a step.
    static constexpr std::size_t samples = 0;   // the number of this rank's samples
    static constexpr std::size_t counting = 1;  // 1 if this rank counts its samples
    static constexpr std::size_t present = 2;   // 1 unless this rank has run out of samples
    static constexpr std::size_t problems = 3;  // 1 if this rank found a problem
    static constexpr std::size_t word_count = 4;

    DeviceLane() = default;
    virtual ~DeviceLane() = default;
    DeviceLane(const DeviceLane&) = delete;
    DeviceLane& operator=(const DeviceLane&) = delete;

    [[nodiscard]] virtual Device device() const noexcept = 0;
    [[nodiscard]] virtual StreamRef stream() const noexcept = 0;

    /// Returns whether the user's stream is being captured into a graph.
    [[nodiscard]] virtual bool is_captured() const = 0;

    /// Makes subsequent work of the lane wait for all work that was enqueued on the user's stream so far.
    virtual void wait_for_user_stream() = 0;
    /// Makes subsequent work of the user's stream wait for all work that was enqueued on the lane so far.
    virtual void make_user_stream_wait() = 0;

    /// Writes this rank's words. A collective on words() then sums them over the ranks.
    virtual void write_words(std::span<const double, word_count> own) = 0;
    [[nodiscard]] virtual Buffer words() noexcept = 0;
    /// Returns the address of the sum of all ranks' sample counts, in device memory. Valid once the words
    /// have been summed.
    [[nodiscard]] const void* samples_sum() noexcept { return words().data; }

    /// Computes tensor.to = weight · tensor.from for each tensor, where all tensor.from have elements of type
    /// `from_type`. A weight of 0 writes zeros.
    virtual void copy(std::span<const LaneCopy> tensors, const LaneWeight& weight, DType from_type) = 0;
    void copy(std::span<const LaneCopy> tensors, const LaneWeight& weight);

    /// Computes tensor.to += factor · tensor.from, then tensor.from = 0, for each tensor, where all
    /// tensor.from have elements of type `from_type`.
    virtual void accumulate(std::span<const LaneCopy> tensors, double factor, DType from_type) = 0;

    /// Allocates zero-initialized device memory.
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    /// Writes one element of a floating-point type.
    virtual void write(const Buffer& element, double value) = 0;
    /// Copies elements from host memory, which may be changed as soon as the call returns. Must not be called
    /// during a graph capture.
    virtual void write_all(const Buffer& to, const void* from) = 0;
    /// Copies to host memory. Blocks until the copy is done.
    virtual void read(const Buffer& from, void* to) = 0;

    [[nodiscard]] virtual DeviceMath& math() noexcept = 0;

    /// Ends a step, and counts the step as failed if, according to the summed words, a rank has a problem or
    /// only some ranks count samples; also if `status`, a sum over the ranks, is not 0. `status.data` may be
    /// null on this rank.
    virtual void record_step_status(const Buffer& status) = 0;

    /// Returns whether a failed step was found since the last call. If `all` is false, checks the recorded
    /// steps except the last one. If `all` is true, checks every step that was enqueued on the user's stream,
    /// including launched graphs. Blocks until the checked steps are done.
    [[nodiscard]] virtual bool has_failed_step(bool all) = 0;
};

/// Elements, and the owner of their memory.
struct OwnedBuffer {
    Buffer elements;
    std::shared_ptr<void> memory;
};

/// Allocates `count` zeros in the memory of the lane's device.
[[nodiscard]] OwnedBuffer allocate(DeviceLane& lane, std::size_t count, DType dtype);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/device_lane.ipp"
#endif
