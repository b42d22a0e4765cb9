/// A CUDA stream that somebody else owns. Calls that work on device memory take one; none of CUDA's headers
/// is needed to pass it on.
#pragma once

#include "dptk/core/config.hpp"

struct CUstream_st;  // what CUDA's cudaStream_t points to

namespace DPTK_NAMESPACE {

/// Made from any cudaStream_t. Points, and owns nothing.
class StreamRef {
  public:
    /// The device's default stream.
    StreamRef() = default;

    /// A stream of CUDA's, which outlives this.
    StreamRef(CUstream_st* stream) noexcept : stream_(stream) {}  // NOLINT(google-explicit-constructor)

    /// CUDA's handle; null for the default stream.
    [[nodiscard]] CUstream_st* get() const noexcept { return stream_; }

    friend bool operator==(StreamRef, StreamRef) = default;

  private:
    CUstream_st* stream_ = nullptr;
};

}  // namespace DPTK_NAMESPACE
