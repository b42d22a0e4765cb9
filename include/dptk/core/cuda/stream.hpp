/// An owned CUDA stream.
#pragma once

#include <cstdint>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Stream priority: the GPU schedules kernels of high-priority streams first.
enum class StreamPriority : std::uint8_t { normal, high };

/// A CUDA stream that does not synchronize with the default stream. Belongs to the device that is current
/// at construction.
class Stream {
  public:
    /// Creates a stream on the current device. Throws BackendError if there is no device.
    explicit Stream(StreamPriority priority = StreamPriority::normal);
    /// Does not block: work that was enqueued on the stream is still executed.
    ~Stream();
    Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// Returns CUDA's handle, which this object still owns.
    [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
    /// Converts to a StreamRef, for functions that accept a stream.
    operator StreamRef() const noexcept { return stream_; }  // NOLINT(google-explicit-constructor)

    /// Blocks until the stream has finished all work that was enqueued on it.
    void synchronize() const;

  private:
    cudaStream_t stream_ = nullptr;
};

/// Returns whether the stream is being captured into a graph. Always false for the default stream, which
/// cannot be captured.
[[nodiscard]] bool is_capturing(StreamRef stream);

namespace detail {

/// Throws ArgumentError if the stream is being captured. Called by functions whose work must not become part
/// of a graph.
void refuse_capture(int rank, StreamRef stream);

}  // namespace detail

/// Blocks until the stream has finished all work that was enqueued on it.
void synchronize(StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/stream.ipp"
#endif
