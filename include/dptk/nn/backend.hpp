/// What somebody writes to run networks on a library or device of their own: the concept that Sequential asks
/// of its backend. nn/reference is the shortest example.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/nn/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// A parameter of a layer, with its gradient, in memory of the backend's layout. `count()` elements may be
/// more than the shape has; the surplus is padding, zero in values and gradients.
/// - `name()`: "weight" or "bias"; `shape()`: PyTorch's
/// - `layout()`: 0 for row-major, else a hash that is equal exactly where memory can be copied as it is
/// - `values()`, `gradient()`: where the elements lie
/// - `set_value_storage(storage)`: from now on the values lie there, in `count()` elements, to which they are
/// copied
/// - `set_gradient_storage(storage)`: from now on the gradient is written there, to `count()` elements
/// - `import_values`, `export_values`, `export_gradient`: from and to row-major elements in host memory
template <class P, class Scalar, class Elements>
concept LayerParameter = requires(P& parameter, const P& constant, Elements storage, std::span<Scalar> out,
                                  std::span<const Scalar> in) {
    { constant.name() } -> std::convertible_to<std::string_view>;
    { constant.shape() } -> std::convertible_to<const Shape&>;
    { constant.count() } -> std::same_as<std::size_t>;
    { constant.layout() } -> std::same_as<std::uint64_t>;
    { parameter.values() } -> std::same_as<Elements>;
    { parameter.gradient() } -> std::same_as<Elements>;
    parameter.set_value_storage(storage);
    parameter.set_gradient_storage(storage);
    parameter.import_values(in);
    parameter.export_values(out);
    parameter.export_gradient(out);
};

/// A layer, for one network and any batch size. Calls come in this order: forward, then, as often as wanted,
/// backward_parameters and perhaps backward_input for the batch of the last forward.
/// - `forward(input)`: the output. The input stays as it is until the backward calls are done.
/// - `parameters()`: in registration order, weight before bias
/// - `backward_parameters(output_gradient)`: overwrites the gradients of all its parameters
/// - `backward_input(output_gradient)`: the gradient of the input; may use up the output gradient
template <class L, class Activation>
concept NetworkLayer = requires(L& layer, const Activation& activation) {
    { layer.forward(activation) } -> std::same_as<Activation>;
    layer.parameters();
    layer.backward_parameters(activation);
    { layer.backward_input(activation) } -> std::same_as<Activation>;
};

/// A backend: who computes, for one network at a time.
/// - `Scalar`: the element type of parameters, inputs and outputs
/// - `Tensor`: a row-major array as the program gives and takes it: nn::Tensor, or DeviceTensor
/// - `Elements`: a view of a parameter's: std::span, or DeviceSpan
/// - `Activation`: what flows between layers, in the backend's own layout; points, and is cheap to copy
/// - `Parameter`, `Layer`: see LayerParameter and NetworkLayer
/// - `make_layers(specs, shapes, generator)`: the layers; `shapes` is shapes_through() of the specs. Draws
///   initial_values() for each parameter in registration order, so that all backends start alike.
/// - `wrap(input)`: an input [n, ...] as an activation; forward begins with it
/// - `wrap_gradient(output_gradient)`: the same of an output gradient, with which backward begins
/// - `store(activation, tensor)`: an activation, as the elements of a tensor that has room for them
template <class B>
concept NetworkBackend = LayerParameter<typename B::Parameter, typename B::Scalar, typename B::Elements> &&
                         NetworkLayer<typename B::Layer, typename B::Activation> &&
                         requires(B& backend, std::span<const LayerSpec> specs, std::span<const Shape> shapes,
                                  Generator& generator, const typename B::Tensor& tensor,
                                  const typename B::Activation& activation, typename B::Tensor& out) {
                             {
                                 backend.make_layers(specs, shapes, generator)
                             } -> std::same_as<std::vector<std::unique_ptr<typename B::Layer>>>;
                             { backend.wrap(tensor) } -> std::same_as<typename B::Activation>;
                             { backend.wrap_gradient(tensor) } -> std::same_as<typename B::Activation>;
                             backend.store(activation, out);
                         };

}  // namespace DPTK_NAMESPACE::nn
