/// An owned CUDA stream.
#pragma once

#include <cstdint>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Whose kernels go first where several streams have some.
enum class StreamPriority : std::uint8_t { normal, high };

/// Belongs to the device that is current when it is made, and does not wait for the default stream.
class Stream {
  public:
    /// On the current device. Throws BackendError where there is none.
    explicit Stream(StreamPriority priority = StreamPriority::normal);
    /// Does not block: what the stream has been given is carried out all the same.
    ~Stream();
    Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// CUDA's handle. This keeps it.
    [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
    /// For whatever takes a stream.
    operator StreamRef() const noexcept { return stream_; }  // NOLINT(google-explicit-constructor)

    /// Blocks until it has done all that it has been given.
    void synchronize() const;

  private:
    cudaStream_t stream_ = nullptr;
};

/// Whether the stream puts what it is given into a graph instead of doing it. The default stream cannot be
/// asked, and is never.
[[nodiscard]] bool is_capturing(StreamRef stream);

namespace detail {

/// Throws ArgumentError: what would go into a graph there would be carried out by whoever launches it.
void refuse_capture(int rank, StreamRef stream);

}  // namespace detail

/// Blocks until the stream has done all that it has been given.
void synchronize(StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/stream.ipp"
#endif
