/// StreamRef, a CUDA stream that the caller owns. Calls that work on device memory accept a StreamRef, which
/// can be passed without CUDA's headers.
#pragma once

#include "dptk/core/config.hpp"

struct CUstream_st;  // what CUDA's cudaStream_t points to

namespace DPTK_NAMESPACE {

/// A non-owning reference to a CUDA stream; converts from any cudaStream_t.
class StreamRef {
  public:
    /// Refers to the device's default stream.
    StreamRef() = default;

    /// Refers to a CUDA stream, which must outlive this object.
    StreamRef(CUstream_st* stream) noexcept : stream_(stream) {}  // NOLINT(google-explicit-constructor)

    /// Returns CUDA's handle; null for the default stream.
    [[nodiscard]] CUstream_st* get() const noexcept { return stream_; }

    friend bool operator==(StreamRef, StreamRef) = default;

  private:
    CUstream_st* stream_ = nullptr;
};

}  // namespace DPTK_NAMESPACE
