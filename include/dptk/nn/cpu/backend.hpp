/// Cpu, the backend for networks on the CPU with oneDNN, in f32 and in the blocked layouts that oneDNN
/// chooses for the processor. Primitives are created once for each batch size. Parameters keep one layout,
/// which depends only on the processor and the number of threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/host_tensors.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// The backend for `Sequential<Cpu>`. Every oneDNN error becomes a BackendError that names the layer.
/// Unlike in PyTorch and the reference backend, ReLU and MaxPool2d do not always propagate NaN: oneDNN
/// mostly replaces NaN by a number.
class Cpu {
  public:
    using Scalar = float;
    using Tensor = nn::Tensor<float>;
    using Elements = std::span<float>;
    using Activation = cpu::Activation;
    using Parameter = cpu::Parameter;
    using Layer = cpu::Layer;

    /// Layouts of parameters are chosen for this typical batch size, so that they do not depend on the
    /// batch sizes that the network is used with.
    static constexpr std::size_t nominal_batch = 32;

    std::vector<std::unique_ptr<Layer>> make_layers(std::span<const LayerSpec> specs,
                                                    std::span<const Shape> shapes, Generator& generator);

    Activation wrap(const Tensor& tensor);

    Activation wrap_gradient(const Tensor& output_gradient) { return wrap(output_gradient); }

    void store(const Activation& activation, Tensor& out);

  private:
    /// Returns PostOp::relu if the first layer is a Linear or Conv2d and the second one a ReLU: oneDNN then
    /// computes the ReLU together with the first layer's output. Returns PostOp::none otherwise.
    static cpu::PostOp post_op_of(std::span<const LayerSpec> layers);

    /// Creates layers one after the other.
    struct LayerFactory {
        const cpu::Context& context;
        Generator& generator;
        std::string label = {};
        bool after_convolution = false;
        bool linear_follows = false;
        cpu::PostOp post_op = cpu::PostOp::none;
        cpu::PostOp post_op_before = cpu::PostOp::none;

        using Layout = cpu::Layout;
        using LayerPointer = std::unique_ptr<Layer>;

        LayerPointer make(const Linear& spec, const Shape& input, const Layout& layout);

        LayerPointer make(const Conv2d& spec, const Shape& input, const Layout& layout);

        LayerPointer make(const ReLU&, const Shape&, const Layout& layout);

        LayerPointer make(const MaxPool2d& spec, const Shape& input, const Layout& layout);

        LayerPointer make(const Flatten&, const Shape&, const Layout& layout);
    };

    cpu::Context context_;
    cpu::HostTensors host_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/backend.ipp"
#endif
