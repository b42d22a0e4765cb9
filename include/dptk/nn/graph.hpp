/// Graph, the structure of a network: operations in the order in which they are added, which is the order of
/// forward. It has no values; a network with a backend and parameters is made of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn {

/// A buffer of a network: its name, its shape and its elements, row-major in host memory.
struct NamedBuffer {
    std::string name;  ///< As in Graph::buffers().
    Shape shape;       ///< The size of each dimension.
    Buffer data;       ///< The elements.
};

namespace detail {

/// Returns the buffers of a network; empty if it has no for_each_buffer().
template <class Net>
[[nodiscard]] std::vector<NamedBuffer> buffers_of_net(Net& net) {
    std::vector<NamedBuffer> all;
    const auto add = [&](const NamedBuffer& buffer) { all.push_back(buffer); };
    if constexpr (requires { net.for_each_buffer(add); }) net.for_each_buffer(add);
    return all;
}

}  // namespace detail

/// The output of an operation of a Graph, which other operations may use.
struct Value {
    std::size_t node;  ///< The index of the operation.
};

/// An operation, and where it stands in the graph.
struct GraphNode {
    Operation operation;              ///< What is computed.
    std::vector<std::size_t> inputs;  ///< The indices of the operations whose outputs are used.
    Shape shape;                      ///< The shape of the output, without the batch dimension.
    std::string name;                 ///< The name, for messages and parameters: "layer1.0.conv1".
};

/// Operations that are added one after the other. A residual block:
///
///     nn::Value block(nn::Graph& g, nn::Value x, std::size_t channels) {
///         nn::Value y = g.conv2d("conv1", x, {.out_channels = channels, .padding = 1, .bias = false});
///         y = g.relu(g.batch_norm("bn1", y));
///         y = g.conv2d("conv2", y, {.out_channels = channels, .padding = 1, .bias = false});
///         return g.relu(g.add(g.batch_norm("bn2", y), x));
///     }
///
/// and two of them, whose parameters are "layer1.0.conv1.weight" and so on:
///
///     for (const char* name : {"layer1.0", "layer1.1"}) {
///         const nn::Graph::Scope names = g.scope(name);
///         x = block(g, x, 64);
///     }
///
/// Operations with parameters have names, as in PyTorch: see Scope. All functions that add an operation throw
/// ArgumentError, with the operation's name, if it does not fit its inputs, or if a name is used twice.
class Graph {
  public:
    class Scope;

    /// Makes a graph whose first operation is an input of the shape `input`, without the batch dimension.
    explicit Graph(Shape input);

    /// Returns the input.
    [[nodiscard]] Value input() const noexcept { return {0}; }

    /// Adds Linear, with a name within the current scope.
    Value linear(std::string_view name, Value x, const Linear& options) {
        return add_operation(options, {x}, name);
    }
    /// Adds Conv2d, with a name within the current scope.
    Value conv2d(std::string_view name, Value x, const Conv2d& options) {
        return add_operation(options, {x}, name);
    }
    /// Adds BatchNorm2d, with a name within the current scope.
    Value batch_norm(std::string_view name, Value x, const BatchNorm2d& options = {}) {
        return add_operation(options, {x}, name);
    }
    /// Adds max(x, 0).
    Value relu(Value x) { return add_operation(ReLU{}, {x}); }
    /// Adds min(max(x, 0), 6).
    Value relu6(Value x) { return add_operation(ReLU6{}, {x}); }
    /// Adds 1 / (1 + exp(-x)).
    Value sigmoid(Value x) { return add_operation(Sigmoid{}, {x}); }
    /// Adds x / (1 + exp(-x)).
    Value silu(Value x) { return add_operation(SiLU{}, {x}); }
    /// Adds Softmax.
    Value softmax(Value x, const Softmax& options = {}) { return add_operation(options, {x}); }
    /// Adds RadixSum.
    Value radix_sum(Value x, const RadixSum& options = {}) { return add_operation(options, {x}); }
    /// Adds Add.
    Value add(Value a, Value b) { return add_operation(Add{}, {a, b}); }
    /// Adds Multiply.
    Value multiply(Value a, Value b) { return add_operation(Multiply{}, {a, b}); }
    /// Adds MaxPool2d.
    Value max_pool(Value x, const MaxPool2d& options) { return add_operation(options, {x}); }
    /// Adds AvgPool2d.
    Value avg_pool(Value x, const AvgPool2d& options) { return add_operation(options, {x}); }
    /// Adds GlobalAvgPool2d.
    Value global_avg_pool(Value x) { return add_operation(GlobalAvgPool2d{}, {x}); }
    /// Adds Flatten.
    Value flatten(Value x) { return add_operation(Flatten{}, {x}); }
    /// Adds Dropout with probability `p`.
    Value dropout(Value x, double p) { return add_operation(Dropout{p}, {x}); }

    /// Adds an operation. `name` may be empty if the operation has no parameters.
    Value add_operation(Operation operation, const std::vector<Value>& inputs, std::string_view name = "");

    /// Prefixes names: while the scope exists, names begin with `name` and a dot.
    [[nodiscard]] Scope scope(std::string_view name);

    /// Returns the operations, in the order of forward. The last one is the output.
    [[nodiscard]] const std::vector<GraphNode>& nodes() const noexcept { return nodes_; }

    /// Returns the shapes of an operation's inputs.
    [[nodiscard]] std::vector<Shape> input_shapes(const GraphNode& node) const;

    /// Returns the shape of an operation's output.
    /// Throws ArgumentError if the value is not of this graph.
    [[nodiscard]] const Shape& shape(Value value) const;

    /// Returns the shape of the graph's input.
    [[nodiscard]] const Shape& input_shape() const noexcept { return nodes_.front().shape; }

    /// Returns the shape of the graph's output.
    [[nodiscard]] const Shape& output_shape() const noexcept { return nodes_.back().shape; }

    /// Computes mean and variance of all batch norms added so far over the batches of all ranks, as PyTorch's
    /// SyncBatchNorm does. In training, forward and backward of a network are then collective.
    void synchronize_batch_norms() noexcept;

    /// Returns whether any batch norm is synchronized.
    [[nodiscard]] bool has_synchronized_batch_norms() const noexcept;

    /// Returns the parameters, with names as in PyTorch's named_parameters().
    [[nodiscard]] std::vector<ParameterSpec> parameters() const;

    /// Returns the buffers, with names as in PyTorch's named_buffers().
    [[nodiscard]] std::vector<BufferSpec> buffers() const;

    /// Returns a table of all operations with output shape, parameters and the FLOPs of forward for one
    /// sample, in which a multiplication and an addition count as two, and the sums. Only Linear and Conv2d
    /// have FLOPs.
    [[nodiscard]] std::string summary() const;

  private:
    std::vector<GraphNode> nodes_;
    std::string prefix_;
};

/// Returns a graph of consecutive operations, with the parameter names of PyTorch's nn.Sequential:
///
///     nn::sequential({1, 28, 28}, {nn::Flatten{}, nn::Linear{128}, nn::ReLU{}, nn::Linear{10}})
///
/// has "1.weight", "1.bias", "3.weight" and "3.bias". Throws ArgumentError as Graph does.
[[nodiscard]] Graph sequential(Shape input, const std::vector<Operation>& operations);

/// See Graph::scope().
class Graph::Scope {
  public:
    /// Begins a scope of the graph, which must outlive it.
    Scope(Graph& graph, std::string_view name);
    ~Scope() { graph_.prefix_ = std::move(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    Graph& graph_;
    std::string before_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/graph.ipp"
#endif
