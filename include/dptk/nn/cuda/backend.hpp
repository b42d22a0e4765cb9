/// Cuda, the backend for networks on a GPU with cuDNN and cuBLASLt. All work of a step is enqueued on one
/// stream. The host waits only for results that it fetches, and in the first step of each batch size, which
/// selects kernels by measuring them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/tensor.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// Options of a network on a GPU.
struct CudaOptions {
    Precision precision = Precision::tf32;  ///< The precision of the network's arithmetic.
    /// The stream on which the network's work is enqueued. Must belong to the current device and outlive the
    /// network.
    StreamRef stream = {};
};

/// The backend for `Sequential<Cuda>`, on the device that is current at construction. Inputs and outputs
/// are row-major tensors of f32 in device memory. A network computes the same bits if a step is repeated with
/// the same parameters and inputs. A ReLU that is fused with the preceding layer may not propagate NaN.
class Cuda {
  public:
    using Scalar = float;
    using Tensor = DeviceTensor<float>;
    using Elements = DeviceSpan<float>;
    using Activation = cuda::Activation;
    using Parameter = cuda::Parameter;
    using Layer = cuda::Layer;

    /// Uses the current device. Throws BackendError if there is no device.
    explicit Cuda(const CudaOptions& options = {});

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator);

    Activation wrap(const Tensor& input);

    Activation wrap_gradient(const Tensor& output_gradient);

    void store(const Activation& activation, Tensor& out);

    /// Returns the stream on which all of the network's work is enqueued.
    [[nodiscard]] StreamRef stream() const noexcept { return context_->stream(); }

    /// Returns a number that changes whenever memory of the network is reallocated or replaced. A batch that
    /// is larger than all before reallocates memory, a new batch size may do so, and set_value_storage() and
    /// set_gradient_storage() replace memory. CUDA graphs that were captured before the change are invalid.
    [[nodiscard]] std::size_t memory_version() const noexcept { return context_->memory_version(); }

  private:
    /// Returns the form of the network's input: images if any layer needs images, otherwise features.
    [[nodiscard]] cuda::Form form_of_input(std::span<const LayerSpec> specs, const Shape& shape) const;

    template <class Spec>
    [[nodiscard]] static bool has_at(std::span<const LayerSpec> specs, std::size_t i) {
        return i < specs.size() && std::holds_alternative<Spec>(specs[i]);
    }

    [[nodiscard]] std::unique_ptr<Layer> make_layer(std::span<const LayerSpec> specs, std::size_t i,
                                                    Generator& generator);

    Activation to_activation(const Tensor& tensor, const cuda::Form& form, cuda::ActivationBuffer& buffer);

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
