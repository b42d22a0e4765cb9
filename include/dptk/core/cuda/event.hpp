/// A point in a stream's work that others can wait for.
#pragma once

#include <utility>

#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk::cuda {

namespace detail {

/// While it lives, this thread may ask for events though another one captures a graph, which that would
/// break.
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

}  // namespace detail

/// Belongs to the device that is current when it is made. Has no time stamp.
class Event {
  public:
    Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }

    /// At what `stream` has been given so far.
    explicit Event(StreamRef stream) : Event() { record(stream); }

    ~Event() {
        if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
    }
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// CUDA's handle. This keeps it.
    [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

    /// Puts the event behind all that `stream` has been given so far. Does not block.
    void record(StreamRef stream) { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }

    /// Whether the stream has come there. Does not block.
    [[nodiscard]] bool ready() const {
        const detail::RelaxedCapture relaxed;
        const cudaError_t status = cudaEventQuery(event_);
        if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
        return status == cudaSuccess;
    }

    /// Blocks until the stream has come there.
    void synchronize() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

    /// What `stream` does from now on comes behind it. Does not block.
    void order_before(StreamRef stream) const {
        check(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
    }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace dptk::cuda
