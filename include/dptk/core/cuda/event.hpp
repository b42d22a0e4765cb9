/// An owned CUDA event: a point in a stream's work that the host and other streams can wait for.
#pragma once

#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

/// A CUDA event without a time stamp. Belongs to the device that is current at construction.
class Event {
  public:
    Event();

    /// Creates the event and records it after all work that was enqueued on `stream` so far.
    explicit Event(StreamRef stream);

    ~Event();
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// Returns CUDA's handle, which this object still owns.
    [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

    /// Records the event after all work that was enqueued on `stream` so far. Does not block.
    void record(StreamRef stream);

    /// Returns whether the stream has reached the event. Does not block.
    [[nodiscard]] bool ready() const;

    /// Blocks until the stream has reached the event.
    void synchronize() const;

    /// Makes subsequent work on `stream` wait for the event. Does not block the host.
    void order_before(StreamRef stream) const;

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/event.ipp"
#endif
