#pragma once

#include "dptk/nn/cuda/context.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE void check(cublasStatus_t status, const char* function) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw BackendError(dptk::detail::text(function, ": ", cublasLtGetStatusString(status)));
}

DPTK_INLINE void check(cudnnStatus_t status, const char* function) {
    if (status != CUDNN_STATUS_SUCCESS)
        throw BackendError(dptk::detail::text(function, ": ", cudnnGetErrorString(status)));
}

DPTK_INLINE bool Scratch::reserve(std::size_t bytes) {
    if (bytes <= memory_.size()) return false;
    memory_ = DeviceBuffer<std::byte>(bytes);
    return true;
}

DPTK_INLINE Context::Context(Precision precision, StreamRef stream)
    : precision_(precision), stream_(stream), device_(dptk::cuda::current_device()) {
    cublasLtHandle_t blas = nullptr;
    check(cublasLtCreate(&blas), "cublasLtCreate");
    blas_.reset(blas);
    cudnnHandle_t dnn = nullptr;
    check(cudnnCreate(&dnn), "cudnnCreate");
    dnn_.reset(dnn);
    check(cudnnSetStream(dnn, stream.get()), "cudnnSetStream");
    reserve_scratch(blas_scratch);
}

DPTK_INLINE std::size_t Context::type_size() const noexcept {
    return dtype_size(type());
}

DPTK_INLINE void Context::reserve_scratch(std::size_t bytes) {
    if (scratch_.reserve(bytes)) note_reallocation();
}

DPTK_INLINE void Context::refuse_capture(const char* reason) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    dptk::cuda::check(cudaStreamIsCapturing(stream_.get(), &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone)
        throw ArgumentError(
            dptk::detail::text("this operation cannot be captured in a CUDA graph: ", reason));
}

DPTK_INLINE std::size_t Context::padded_channels(std::size_t channels) const noexcept {
    const std::size_t pack = 16 / type_size();
    return (channels + pack - 1) / pack * pack;
}

DPTK_INLINE void Context::CloseBlas::operator()(cublasLtHandle_t handle) const noexcept {
    static_cast<void>(cublasLtDestroy(handle));
}

DPTK_INLINE TimedEvent::TimedEvent() {
    dptk::cuda::check(cudaEventCreate(&event_), "cudaEventCreate");
}

DPTK_INLINE TimedEvent::~TimedEvent() {
    static_cast<void>(cudaEventDestroy(event_));
}

DPTK_INLINE void TimedEvent::record(StreamRef stream) {
    dptk::cuda::check(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
}

DPTK_INLINE float TimedEvent::since(const TimedEvent& earlier) const {
    dptk::cuda::check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float milliseconds = 0;
    dptk::cuda::check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return milliseconds;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
