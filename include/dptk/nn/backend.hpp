/// The backend concept of Sequential, for running networks on another library or device: NetworkBackend
/// with its parts LayerParameter and NetworkLayer. nn/reference is the shortest implementation.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/layers.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// A parameter of a layer, with its gradient, in the backend's memory layout. `count()` may exceed the
/// number of elements in the shape; the surplus is padding, which is zero in values and gradients.
/// - `name()`: "weight" or "bias"; `shape()`: PyTorch's shape
/// - `layout()`: 0 for row-major, otherwise a hash; parameters with equal hashes have the same layout
/// - `values()`, `gradient()`: views of the elements
/// - `set_value_storage(storage)`: moves the values to `storage`, which has `count()` elements
/// - `set_gradient_storage(storage)`: makes the layer write the gradient to `storage`, which has `count()`
///   elements
/// - `import_values`, `export_values`, `export_gradient`: convert from and to row-major host memory
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

/// A layer of one network, for any batch size. After a forward, backward_parameters may be called any number
/// of times, each time optionally followed by backward_input. Both apply to the batch of the last forward.
/// - `forward(input)`: returns the output. The input must stay unchanged until the backward calls are done.
/// - `parameters()`: returns the parameters in registration order, weight before bias
/// - `backward_parameters(output_gradient)`: overwrites the gradients of all parameters
/// - `backward_input(output_gradient)`: returns the gradient of the input; may overwrite the output gradient
template <class L, class Activation>
concept NetworkLayer = requires(L& layer, const Activation& activation) {
    { layer.forward(activation) } -> std::same_as<Activation>;
    layer.parameters();
    layer.backward_parameters(activation);
    { layer.backward_input(activation) } -> std::same_as<Activation>;
};

/// A backend performs the computations of one network at a time.
/// - `Scalar`: the element type of parameters, inputs and outputs
/// - `Tensor`: the row-major array type of inputs and outputs: nn::Tensor, or DeviceTensor
/// - `Elements`: a view of a parameter's elements: std::span, or DeviceSpan
/// - `Activation`: a non-owning, cheaply copied reference to data between layers, in the backend's layout
/// - `Parameter`, `Layer`: see LayerParameter and NetworkLayer
/// - `make_layers(specs, shapes, generator)`: returns the layers; `shapes` is shapes_through() of the specs.
///   Draws initial_values() for each parameter in registration order, so that all backends start with equal
///   values.
/// - `wrap(input)`: converts an input [n, ...] to an activation; called at the start of each forward
/// - `wrap_gradient(output_gradient)`: converts an output gradient; called at the start of each backward
/// - `store(activation, tensor)`: writes the elements of an activation to a tensor that has enough room
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
