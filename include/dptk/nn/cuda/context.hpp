/// The resources that the layers of a network on a GPU share: the stream, the libraries' handles and the
/// workspace.
#pragma once

#if !__has_include(<cublasLt.h>)
#error "dptk/nn/cuda needs cuBLASLt of the CUDA Toolkit: link dptk::nn_cuda"
#endif
#if !__has_include(<cudnn.h>)
#error "dptk/nn/cuda needs cuDNN 9: link dptk::nn_cuda, or add the folder of cudnn.h to the include path"
#endif
#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/nn/precision.hpp"

#if CUDNN_MAJOR < 9
#error "dptk/nn/cuda needs cuDNN 9 or newer"
#endif

namespace DPTK_NAMESPACE::nn::cuda {

using dptk::cuda::DeviceBuffer;

/// Throws BackendError if a function of cuBLASLt has failed.
void check(cublasStatus_t status, const char* function);

/// Throws BackendError if a function of cuDNN has failed.
void check(cudnnStatus_t status, const char* function);

/// A workspace that the operations of one stream use one after the other. It grows while operations are
/// planned.
class Scratch {
  public:
    /// Makes room for `bytes`. Returns whether the memory was reallocated.
    bool reserve(std::size_t bytes);
    [[nodiscard]] void* data() noexcept { return memory_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }

  private:
    DeviceBuffer<std::byte> memory_;
};

/// The resources of a network, on the device that is current at construction.
class Context {
  public:
    Context(Precision precision, StreamRef stream);

    /// The workspace size that cuBLASLt recommends for Hopper GPUs.
    static constexpr std::size_t blas_scratch = std::size_t{32} << 20;

    [[nodiscard]] Precision precision() const noexcept { return precision_; }
    [[nodiscard]] DType type() const noexcept { return activation_type(precision_); }
    [[nodiscard]] std::size_t type_size() const noexcept;
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }
    [[nodiscard]] int device() const noexcept { return device_; }
    [[nodiscard]] cublasLtHandle_t blas() const noexcept { return blas_.get(); }
    [[nodiscard]] cudnnHandle_t dnn() const noexcept { return dnn_.get(); }
    [[nodiscard]] Scratch& scratch() noexcept { return scratch_; }

    void reserve_scratch(std::size_t bytes);

    /// Throws ArgumentError, with the reason, if the stream is captured in a CUDA graph.
    void refuse_capture(const char* reason) const;

    /// Must be called when memory that layers compute in was reallocated.
    void note_reallocation() noexcept { ++memory_version_; }

    /// Returns a number that changes with each call of note_reallocation(). Such a call invalidates the CUDA
    /// graphs that were captured before.
    [[nodiscard]] std::size_t memory_version() const noexcept { return memory_version_; }

    /// Returns `channels`, rounded up so that the channels of a pixel fill a multiple of 16 bytes.
    [[nodiscard]] std::size_t padded_channels(std::size_t channels) const noexcept;

  private:
    struct CloseBlas {
        void operator()(cublasLtHandle_t handle) const noexcept;
    };
    struct CloseDnn {
        void operator()(cudnnHandle_t handle) const noexcept { static_cast<void>(cudnnDestroy(handle)); }
    };

    Precision precision_;
    StreamRef stream_;
    int device_;
    std::unique_ptr<cublasLtContext, CloseBlas> blas_;
    std::unique_ptr<cudnnContext, CloseDnn> dnn_;
    Scratch scratch_;
    std::size_t memory_version_ = 0;
};

/// A CUDA event with a time stamp.
class TimedEvent {
  public:
    TimedEvent();
    ~TimedEvent();
    TimedEvent(const TimedEvent&) = delete;
    TimedEvent& operator=(const TimedEvent&) = delete;

    void record(StreamRef stream);

    /// Returns the time since `earlier` in milliseconds. Blocks until the stream has reached this event.
    [[nodiscard]] float since(const TimedEvent& earlier) const;

  private:
    cudaEvent_t event_ = nullptr;
};

/// Calls `run(i)` a few times for each index i below `candidates`, and returns the fastest index. Blocks.
template <class Run>
[[nodiscard]] std::size_t find_fastest(Context& context, std::size_t candidates, Run&& run) {
    if (candidates == 1) return 0;
    TimedEvent begin;
    TimedEvent end;
    std::size_t best = 0;
    float least = 0;
    for (std::size_t i = 0; i < candidates; ++i) {
        float fastest = 0;
        for (int turn = 0; turn < 4; ++turn) {  // the first run is not measured: it also loads the kernels
            begin.record(context.stream());
            run(i);
            end.record(context.stream());
            const float milliseconds = end.since(begin);
            if (turn > 0) fastest = turn == 1 ? milliseconds : std::min(fastest, milliseconds);
        }
        if (i == 0 || fastest < least) {
            least = fastest;
            best = i;
        }
    }
    return best;
}

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/context.ipp"
#endif
