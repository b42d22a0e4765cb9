/// A lane is a CUDA stream with its events and kernels, beside the user's stream. In it a step's gradients
/// are copied to buckets, summed and copied back without blocking the host. This interface is for code that
/// does not include CUDA's headers; core/cuda/detail/device_lane.hpp implements it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_math.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// A gradient and the elements of its bucket, `to`, whose dtype is the bucket's.
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
    static constexpr std::size_t present = 2;   // 1 unless this rank only shadows the others
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
    /// Points to the number of all ranks' samples, once the words have been summed.
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
    /// Copies elements from host memory, which may change once this returns. Must not be called during a
    /// graph capture.
    virtual void write_all(const Buffer& to, const void* from) = 0;
    /// Copies to host memory. Blocks until the copy is done.
    virtual void read(const Buffer& from, void* to) = 0;

    [[nodiscard]] virtual DeviceMath& math() noexcept = 0;

    /// Ends a step and counts it if it was bad. A step is bad if the summed words say that a rank has a
    /// problem or that only some ranks count samples, or if the status is not 0. The status is a sum over
    /// the ranks; its data may be null on this rank.
    virtual void record_step_status(const Buffer& status) = 0;

    /// Returns whether a bad step was found since the last call. Checks the steps up to the one before the
    /// last judged step, or, if `all`, every step that was enqueued on the user's stream, including
    /// launched graphs. Blocks until these steps are done.
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
