/// A stream of dptk's own beside the program's, in which a step's gradients are copied, summed and copied
/// back while the host goes on; for code without CUDA's headers. core/cuda/detail/device_lane.hpp has it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_math.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// A gradient and its place in a bucket: the elements of `to`, of its dtype.
struct LaneCopy {
    Buffer to;
    const void* from = nullptr;
};

/// What a rank's elements are multiplied by.
struct LaneWeight {
    double factor = 1;
    /// The factor is divided by this f64 in the lane's memory, where it is not null; 0 makes the weight 0.
    const void* divisor = nullptr;
};

/// On one device. Calls do not wait for what they do, but for allocate(), read() and was_bad(); none is for
/// two threads at a time.
class DeviceLane {
  public:
    /// The words that a step begins with, and their places.
    static constexpr std::size_t samples = 0;   // of this rank
    static constexpr std::size_t counting = 1;  // 1 where it counts samples
    static constexpr std::size_t present = 2;   // 1 where it is no shadow
    static constexpr std::size_t problems = 3;  // 1 where something is wrong
    static constexpr std::size_t word_count = 4;

    DeviceLane() = default;
    virtual ~DeviceLane() = default;
    DeviceLane(const DeviceLane&) = delete;
    DeviceLane& operator=(const DeviceLane&) = delete;

    [[nodiscard]] virtual Device device() const noexcept = 0;
    [[nodiscard]] virtual StreamRef stream() const noexcept = 0;

    /// Whether the program's stream is being captured into a graph.
    [[nodiscard]] virtual bool is_captured() const = 0;

    /// The lane goes on behind what the program's stream has been given.
    virtual void wait_for_user_stream() = 0;
    /// The program's stream goes on behind what the lane has been given.
    virtual void make_user_stream_wait() = 0;

    /// Writes this rank's words. Their sums over the ranks are made by a collective on words().
    virtual void write_words(std::span<const double, word_count> own) = 0;
    [[nodiscard]] virtual Buffer words() noexcept = 0;
    /// Of all ranks' samples, once the words are summed.
    [[nodiscard]] const void* samples_sum() noexcept { return words().data; }

    /// to = weight · from, for tensors of one dtype, from elements of `from`; zeros for a weight of 0.
    virtual void copy(std::span<const LaneCopy> tensors, const LaneWeight& weight, DType from) = 0;
    void copy(std::span<const LaneCopy> tensors, const LaneWeight& weight);

    /// to += factor · from, and from = 0, for tensors of one dtype, from elements of `from`.
    virtual void accumulate(std::span<const LaneCopy> tensors, double factor, DType from) = 0;

    /// Zeros.
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

    /// One element of a floating-point type.
    virtual void write(const Buffer& element, double value) = 0;
    /// Elements of the host's, which may change when this returns. Not while it is captured.
    virtual void write_all(const Buffer& to, const void* from) = 0;
    /// To the host's memory. Blocks until it is there.
    virtual void read(const Buffer& from, void* to) = 0;

    [[nodiscard]] virtual DeviceMath& math() noexcept = 0;

    /// Ends a step. It is bad where the words say that a rank has a problem, or that some ranks count samples
    /// and others do not, or where the status, a sum over the ranks that may have no data here, is not 0.
    virtual void judge(const Buffer& status) = 0;

    /// Whether a step was bad of those up to the one before the last judged, or, with `all`, of all that the
    /// program's stream has been given, in graphs as well; and forgets it. Blocks until they are over.
    [[nodiscard]] virtual bool was_bad(bool all) = 0;
};

/// Elements, and what keeps their memory.
struct OwnedBuffer {
    Buffer elements;
    std::shared_ptr<void> memory;
};

/// Zeros.
[[nodiscard]] OwnedBuffer allocate(DeviceLane& lane, std::size_t count, DType dtype);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/device_lane.ipp"
#endif
