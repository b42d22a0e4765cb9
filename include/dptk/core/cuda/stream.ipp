#pragma once

#include "dptk/core/cuda/stream.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE Stream::Stream(StreamPriority priority) {
    int lowest = 0;
    int highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                       priority == StreamPriority::high ? highest : lowest),
          "cudaStreamCreateWithPriority");
}

DPTK_INLINE Stream::~Stream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

DPTK_INLINE Stream& Stream::operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
}

DPTK_INLINE void Stream::synchronize() const {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

DPTK_INLINE bool is_capturing(StreamRef stream) {
    if (stream == StreamRef()) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

}  // namespace DPTK_NAMESPACE::cuda

namespace DPTK_NAMESPACE::cuda::detail {

DPTK_INLINE void refuse_capture(int rank, StreamRef stream) {
    if (!is_capturing(stream)) return;
    throw ArgumentError(dptk::detail::text(
        "rank ", rank, ": this call must not be made on a stream that is being captured into a CUDA graph"));
}

}  // namespace DPTK_NAMESPACE::cuda::detail

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE void synchronize(StreamRef stream) {
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

}  // namespace DPTK_NAMESPACE::cuda
