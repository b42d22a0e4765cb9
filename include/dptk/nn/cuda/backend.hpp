/// Cuda: networks on a GPU, over cuDNN and cuBLASLt. All of a step's work is put on one stream; the host
/// waits for nothing but what it asks for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/tensor.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// Of a network on a GPU.
struct CudaOptions {
    Precision precision = Precision::tf32;  ///< In which arithmetic it computes.
    /// Of the current device. Must outlive the network.
    StreamRef stream = {};
};

/// The backend for `Sequential<Cuda>`, on the device that is current when it is made. Inputs and outputs are
/// row-major tensors of f32 in device memory. What is the same from step to step gives the same bits. A NaN
/// need not come through the ReLU that comes with a layer's output.
class Cuda {
  public:
    using Scalar = float;
    using Tensor = DeviceTensor<float>;
    using Elements = DeviceSpan<float>;
    using Activation = cuda::Activation;
    using Parameter = cuda::Parameter;
    using Layer = cuda::Layer;

    /// On the current device. Throws BackendError where there is none.
    explicit Cuda(const CudaOptions& options = {});

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator);

    Activation wrap(const Tensor& input);

    Activation wrap_gradient(const Tensor& output_gradient);

    void store(const Activation& activation, Tensor& out);

    /// The stream on which all of the network's work goes.
    [[nodiscard]] StreamRef stream() const noexcept { return context_->stream(); }

    /// Another number whenever memory of the network has moved, as it does for a larger batch than ever, and
    /// may for one of a new size: graphs that were captured before are of no use then.
    [[nodiscard]] std::size_t memory_version() const noexcept { return context_->memory_version(); }

  private:
    /// Images only where a layer needs them.
    [[nodiscard]] cuda::Form form_of_input(std::span<const LayerSpec> specs, const Shape& shape) const;

    template <class Spec>
    [[nodiscard]] static bool has_at(std::span<const LayerSpec> specs, std::size_t i) {
        return i < specs.size() && std::holds_alternative<Spec>(specs[i]);
    }

    [[nodiscard]] std::unique_ptr<Layer> make_layer(std::span<const LayerSpec> specs, std::size_t i,
                                                    Generator& generator);

    Activation bring_in(const Tensor& tensor, const cuda::Form& form, cuda::ActivationBuffer& buffer);

    std::unique_ptr<cuda::Context> context_;
    cuda::Form input_;
    cuda::Form output_;
    std::vector<Parameter*> parameters_;
    std::vector<cuda::kernels::ConvertedTensor> converted_;
    cuda::ActivationBuffer inputs_;
    cuda::ActivationBuffer gradients_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/backend.ipp"
#endif
