/// Cuda, the backend for networks on a GPU with cuDNN and cuBLASLt. All work of a step is enqueued on one
/// stream. The host waits only for results that it fetches, and in the first step of each batch size, which
/// selects kernels by measuring them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/tensor.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn {

/// Options of a network on a GPU.
struct CudaOptions {
    Precision precision = Precision::tf32;  ///< The precision of the network's arithmetic.
    /// The stream on which the network's work is enqueued. Must belong to the current device and outlive the
    /// network.
    StreamRef stream = {};
};

/// The backend for `Network<Cuda>`, on the device that is current at construction. Inputs and outputs are
/// row-major tensors of f32 in device memory. A network computes the same bits if a step is repeated with the
/// same parameters and inputs. A ReLU that is fused with the preceding operation may not propagate NaN.
///
/// Runs Linear, Conv2d, BatchNorm2d, ReLU, ReLU6, SiLU, Add, MaxPool2d, AvgPool2d, GlobalAvgPool2d, Flatten
/// and Dropout. With groups, the numbers of channels must be multiples of 4, or of 8 with bf16. The network's
/// constructor throws ArgumentError for other operations. Buffers are in device memory. Batch norms that are
/// synchronized sum through host memory, and block. They and Dropout cannot be captured in a CUDA graph.
class Cuda {
  public:
    using Scalar = float;
    using Tensor = DeviceTensor<float>;
    using Elements = DeviceSpan<float>;
    using Layout = cuda::Layout;
    using Memory = cuda::Memory;
    using Parameter = cuda::Parameter;
    using Layer = cuda::Layer;

    static constexpr bool copies_tensors = true;

    /// Uses the current device. Throws BackendError if there is no device.
    explicit Cuda(const CudaOptions& options = {});

    [[nodiscard]] bool fuses_relu(const Operation& operation) const;

    [[nodiscard]] Layout nominal_input(const Graph& graph) const { return input_layout(graph, 1); }

    /// Returns the layout of images if any operation needs images, otherwise that of features.
    [[nodiscard]] Layout input_layout(const Graph& graph, std::size_t batch) const;

    [[nodiscard]] Layout output_gradient_layout(const Layout& output) const { return output; }

    std::unique_ptr<Layer> make_layer(const cuda::Request& request);

    std::byte* reserve(std::size_t bytes);

    [[nodiscard]] std::size_t bytes(const Layout& layout) const;

    [[nodiscard]] Memory make_memory(const Layout& layout) const;

    void bind(Memory& memory, std::byte* address) const { memory->data = address; }

    /// Converts the parameters to the type of activations.
    void begin_forward();

    void load(const Tensor& tensor, Memory& memory) const;

    [[nodiscard]] std::function<void(Tensor&)> plan_store(const Memory& memory);

    [[nodiscard]] std::function<void()> plan_sum(const Memory& a, const Memory& b, const Memory& sum);

    /// Copies the elements of a buffer of the network to host memory. Blocks.
    void fetch(const Buffer& buffer, void* out) const;

    /// Copies elements from host memory to a buffer of the network. Blocks.
    void store(const void* from, const Buffer& buffer) const;

    /// Returns the stream on which all of the network's work is enqueued.
    [[nodiscard]] StreamRef stream() const noexcept { return context_->stream(); }

    /// Returns a number that changes whenever memory of the network is reallocated or replaced: at the first
    /// use of a batch size, and by set_value_storage() and set_gradient_storage(). CUDA graphs that were
    /// captured before the change are invalid.
    [[nodiscard]] std::size_t memory_version() const noexcept { return context_->memory_version(); }

  private:
    std::unique_ptr<cuda::Context> context_;
    std::vector<Parameter*> parameters_;
    std::vector<cuda::kernels::ConvertedTensor> converted_;
    dptk::cuda::DeviceBuffer<std::byte> memory_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/backend.ipp"
#endif
