/// An owned CUDA stream.
#pragma once

#include <cstdint>
#include <utility>

#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk::cuda {

/// Whose kernels go first where several streams have some.
enum class StreamPriority : std::uint8_t { normal, high };

/// Belongs to the device that is current when it is made, and does not wait for the default stream.
class Stream {
  public:
    /// On the current device. Throws BackendError where there is none.
    explicit Stream(StreamPriority priority = StreamPriority::normal) {
        int lowest = 0;
        int highest = 0;
        check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
        check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                           priority == StreamPriority::high ? highest : lowest),
              "cudaStreamCreateWithPriority");
    }
    /// Does not block: what the stream has been given is carried out all the same.
    ~Stream() {
        if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
    }
    Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// CUDA's handle. This keeps it.
    [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
    /// For whatever takes a stream.
    operator StreamRef() const noexcept { return stream_; }  // NOLINT(google-explicit-constructor)

    /// Blocks until it has done all that it has been given.
    void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  private:
    cudaStream_t stream_ = nullptr;
};

/// Whether the stream puts what it is given into a graph instead of doing it. The default stream cannot be
/// asked, and is never.
[[nodiscard]] inline bool is_capturing(StreamRef stream) {
    if (stream == StreamRef()) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

namespace detail {

/// Throws ArgumentError: what would go into a graph there would be carried out by whoever launches it.
inline void refuse_capture(int rank, StreamRef stream) {
    if (!is_capturing(stream)) return;
    throw ArgumentError(
        dptk::detail::text("rank ", rank, ": a call on a stream that is being captured into a CUDA graph"));
}

}  // namespace detail

/// Blocks until the stream has done all that it has been given.
inline void synchronize(StreamRef stream) {
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

}  // namespace dptk::cuda
