#pragma once

#include "dptk/core/cuda/event.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

/// Allows this thread, for the lifetime of this object, to query events while another thread captures a
/// graph. Without it, the query would invalidate the capture.
class RelaxedCapture {
  public:
    RelaxedCapture() { exchange(); }
    ~RelaxedCapture() { exchange(); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    void exchange() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace DPTK_NAMESPACE::cuda::detail

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE Event::Event() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

DPTK_INLINE Event::Event(StreamRef stream) : Event() {
    record(stream);
}

DPTK_INLINE Event::~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

DPTK_INLINE Event& Event::operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
}

DPTK_INLINE void Event::record(StreamRef stream) {
    check(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
}

DPTK_INLINE bool Event::ready() const {
    const detail::RelaxedCapture relaxed;
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
    return status == cudaSuccess;
}

DPTK_INLINE void Event::synchronize() const {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

DPTK_INLINE void Event::order_before(StreamRef stream) const {
    check(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
}

}  // namespace DPTK_NAMESPACE::cuda
