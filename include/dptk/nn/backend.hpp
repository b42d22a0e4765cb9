/// The backend concept of Network, for running networks on another library or device. nn/reference is the
/// shortest implementation. A backend says how to plan one operation, and how to run its forward and
/// backward; Network does everything else.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/detail/memory_plan.hpp"
#include "dptk/nn/detail/network_structure.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/initialize.hpp"

namespace DPTK_NAMESPACE::nn {

/// The memory of an operation's arguments.
template <class Memory>
struct Arguments {
    std::vector<Memory> inputs;           ///< Those of the operation.
    Memory output{};                      ///< Written by forward.
    Memory output_gradient{};             ///< Read by backward.
    std::vector<Memory> input_gradients;  ///< Written by backward.
};

/// An operation of a network for one batch size. The constructor of a derived class chooses the layout of the
/// output. After a forward, the network may call backward_parameters() and after that backward_inputs(), each
/// once.
template <class Layout, class Memory>
class OperationPlan {
  public:
    /// Memory that the plan needs besides its arguments.
    struct Workspace {
        Memory memory;                                             ///< Which the network binds to memory.
        std::size_t bytes = 0;                                     ///< The size.
        detail::WorkspaceUse use = detail::WorkspaceUse::forward;  ///< When it is needed.
    };

    virtual ~OperationPlan() = default;

    Layout output{};                    ///< The layout of the output.
    detail::MemoryUse use;              ///< What the plan does with its arguments.
    std::vector<Workspace> workspaces;  ///< Further memory that it needs.

    /// Returns the layouts in which backward writes the gradients of the inputs, for an output gradient of
    /// the layout `output_gradient`. May add workspaces. Called once.
    virtual std::vector<Layout> plan_backward(const Layout& output_gradient) = 0;

    /// Computes the output.
    virtual void forward(const Arguments<Memory>& arguments, const Pass& pass) = 0;
    /// Computes the gradients of the parameters, if there are any. May also compute those of the inputs.
    virtual void backward_parameters(const Arguments<Memory>& /*arguments*/, const Pass& /*pass*/) {}
    /// Computes the gradients of the inputs.
    virtual void backward_inputs(const Arguments<Memory>& arguments, const Pass& pass) = 0;
};

/// An operation of a network, as layers need it.
struct OperationInfo {
    Operation operation;               ///< What is computed.
    std::vector<Shape> inputs;         ///< The shapes of the inputs, without the batch dimension.
    Shape output;                      ///< The shape of the output.
    std::size_t node = 0;              ///< The index in the graph.
    bool feeds_only_linear = false;    ///< Whether all consumers are Linear.
    FusedReLU relu = FusedReLU::none;  ///< Whether a ReLU is computed together with it.
    std::string label;                 ///< Names the operation in errors.
};

/// What a backend makes a layer of.
template <class Layout, std::floating_point Scalar>
struct LayerRequest {
    OperationInfo info;              ///< The operation.
    std::span<const Layout> inputs;  ///< The layouts of the inputs, for the backend's typical batch size.
    const Operation& before;         ///< The operation of the first input.
    RunningStatistics<Scalar>* statistics;     ///< For a batch norm.
    std::vector<std::vector<Scalar>> initial;  ///< The first values of the parameters, row-major.
};

/// A parameter of a layer, with its gradient, in the backend's memory layout. `count()` may exceed the
/// number of elements in the shape; the surplus is padding, which is zero in values and gradients.
/// - `shape()`: PyTorch's shape
/// - `layout()`: 0 for row-major, otherwise a hash; parameters with equal hashes have the same layout
/// - `values()`, `gradient()`: views of the elements
/// - `set_value_storage(storage)`: moves the values to `storage`, which has `count()` elements
/// - `set_gradient_storage(storage)`: makes the layer write the gradient to `storage`, which has `count()`
///   elements
/// - `from_row_major(in, elements)`, `to_row_major(elements, out)`: convert elements of the parameter's
/// layout
///   from and to row-major host memory
/// - `zero_gradient()`: sets the gradient to zero
/// - `make_row_major()`: changes the layout to row-major, if the backend can; drops the gradient
template <class P, class Scalar, class Elements>
concept LayerParameter = requires(P& parameter, const P& constant, Elements storage, std::span<Scalar> out,
                                  std::span<const Scalar> in) {
    { constant.shape() } -> std::convertible_to<const Shape&>;
    { constant.count() } -> std::same_as<std::size_t>;
    { constant.layout() } -> std::same_as<std::uint64_t>;
    { parameter.values() } -> std::same_as<Elements>;
    { parameter.gradient() } -> std::same_as<Elements>;
    parameter.set_value_storage(storage);
    parameter.set_gradient_storage(storage);
    constant.from_row_major(in, storage);
    constant.to_row_major(storage, out);
    parameter.zero_gradient();
    parameter.make_row_major();
};

/// A layer of one network, for any batch size.
/// - `parameters()`: returns the parameters, in the order of parameters_of() the operation
/// - `nominal_output()`: returns the layout of the output for the backend's typical batch size
/// - `plan(batch, inputs)`: returns the plan for a batch size and the layouts of the inputs
template <class L, class Layout, class Memory>
concept NetworkLayer = requires(L& layer, std::size_t batch, std::span<const Layout> inputs) {
    layer.parameters();
    { layer.nominal_output() } -> std::convertible_to<Layout>;
    { layer.plan(batch, inputs) } -> std::same_as<std::unique_ptr<OperationPlan<Layout, Memory>>>;
};

/// A backend performs the computations of one network at a time.
/// - `Scalar`: the element type of parameters, inputs and outputs
/// - `Tensor`: the row-major array type of inputs and outputs: nn::Tensor, or DeviceTensor
/// - `Elements`: a view of a parameter's elements: std::span, or DeviceSpan
/// - `Layout`: how a value lies in memory; `Memory`: a cheaply copied handle to memory of a layout
/// - `Parameter`, `Layer`: see LayerParameter and NetworkLayer
/// - `copies_tensors`: whether load() copies to memory of the network, instead of binding to the tensor
/// - `fuses_relu(operation)`: whether layers of such operations can compute a ReLU that follows
/// - `nominal_input(graph)`, `input_layout(graph, batch)`: return the layout of the network's input, for the
///   typical batch size and for another one
/// - `output_gradient_layout(layout)`: returns the layout of the output's gradient, for an output of `layout`
/// - `make_layer(request)`: returns the layer of an operation
/// - `reserve(bytes)`: returns memory for values and gradients; the contents of earlier memory may be lost
/// - `bytes(layout)`, `make_memory(layout)`, `bind(memory, address)`: the size of a layout, a handle that
///   does not refer to memory yet, and its address
/// - `begin_forward()`, which is optional: called at the start of each forward
/// - `pass_scope()`, which is optional: returns an object that exists during each forward and backward
/// - `load(tensor, memory)`: copies or binds
/// - `plan_store(memory)`: returns a function object that copies to a tensor that has enough room
/// - `plan_sum(a, b, sum)`: returns a function object that adds two values; all three may be the same memory
template <class B>
concept NetworkBackend =
    LayerParameter<typename B::Parameter, typename B::Scalar, typename B::Elements> &&
    NetworkLayer<typename B::Layer, typename B::Layout, typename B::Memory> &&
    requires(B& backend, const Graph& graph, const Operation& operation, std::size_t number,
             const typename B::Layout& layout, typename B::Memory& memory,
             const LayerRequest<typename B::Layout, typename B::Scalar>& request, typename B::Tensor& tensor,
             const typename B::Tensor& constant, std::byte* address) {
        { B::copies_tensors } -> std::convertible_to<bool>;
        { backend.fuses_relu(operation) } -> std::same_as<bool>;
        { backend.input_layout(graph, number) } -> std::same_as<typename B::Layout>;
        { backend.nominal_input(graph) } -> std::same_as<typename B::Layout>;
        { backend.output_gradient_layout(layout) } -> std::same_as<typename B::Layout>;
        { backend.make_layer(request) } -> std::same_as<std::unique_ptr<typename B::Layer>>;
        { backend.reserve(number) } -> std::same_as<std::byte*>;
        { backend.bytes(layout) } -> std::same_as<std::size_t>;
        { backend.make_memory(layout) } -> std::same_as<typename B::Memory>;
        backend.bind(memory, address);
        backend.load(constant, memory);
        backend.plan_store(memory)(tensor);
        backend.plan_sum(memory, memory, memory)();
    };

}  // namespace DPTK_NAMESPACE::nn
