/// A point in a stream's work that others can wait for.
#pragma once

#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Belongs to the device that is current when it is made. Has no time stamp.
class Event {
  public:
    Event();

    /// At what `stream` has been given so far.
    explicit Event(StreamRef stream);

    ~Event();
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// CUDA's handle. This keeps it.
    [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

    /// Puts the event behind all that `stream` has been given so far. Does not block.
    void record(StreamRef stream);

    /// Whether the stream has come there. Does not block.
    [[nodiscard]] bool ready() const;

    /// Blocks until the stream has come there.
    void synchronize() const;

    /// What `stream` does from now on comes behind it. Does not block.
    void order_before(StreamRef stream) const;

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/event.ipp"
#endif
