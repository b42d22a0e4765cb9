/// Sequential: a network of layers, one after the other, with forward and backward and no tape. Gradients
/// live in memory that the caller may supply, such as DDP's buckets, and each one is announced when it is
/// complete.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/parameter_ref.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// Whether backward also computes the gradient of the network's input, which training does not need.
enum class InputGradient { skip, compute };

/// Layers in a row on a backend: `Sequential<Reference<double>>`, `Sequential<Cpu>`. One thread at a time.
/// Parameters are numbered in registration order, weight before bias, and called as PyTorch's nn.Sequential
/// does: "0.weight", "0.bias", "2.weight".
template <NetworkBackend Backend>
class Sequential {
  public:
    using Scalar = typename Backend::Scalar;  ///< The element type of parameters, inputs and outputs.
    /// In host memory or a device's, as the backend has it.
    using Tensor = typename Backend::Tensor;
    /// A view of a parameter's elements, there.
    using Elements = typename Backend::Elements;

    /// \param input_shape of one sample, without the batch dimension
    /// \param seed of the initial values, which are the same on all backends; see initial_values
    /// \throws ArgumentError where a layer does not fit what comes before it
    /// \throws BackendError where the library below refuses a layer
    Sequential(std::vector<LayerSpec> specs, const Shape& input_shape, std::uint64_t seed,
               Backend backend = Backend{})
        : backend_(std::move(backend)),
          shapes_(shapes_through(specs, input_shape)),
          specs_(std::move(specs)) {
        Generator generator(seed);
        layers_ = backend_.make_layers(specs_, shapes_, generator);
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            for (Parameter* parameter : layers_[i]->parameters()) {
                parameters_.push_back(parameter);
                names_.push_back(dptk::detail::text(i, ".", parameter->name()));
            }
            parameters_end_.push_back(parameters_.size());
        }
    }

    Sequential(Sequential&&) noexcept = default;
    Sequential& operator=(Sequential&&) noexcept = default;

    /// The output [n, ...output_shape()] for the input [n, ...input_shape()]. n may differ from call to call;
    /// what a batch size needs is made at its first use and kept. The input must live, unchanged, until the
    /// last backward for it; the output lives until the next forward. \throws ArgumentError where the shape
    /// is not that, or n is 0
    const Tensor& forward(const Tensor& input) {
        const std::size_t n = input.shape().empty() ? 0 : input.shape()[0];
        require_shape("the input", input, n, input_shape());
        if (n == 0) throw ArgumentError("Sequential: the batch is empty; it must have at least one sample");
        batch_size_ = 0;
        Activation activation = backend_.wrap(input);
        for (const auto& layer : layers_) activation = layer->forward(activation);
        output_.resize(n, output_shape());
        backend_.store(activation, output_);
        batch_size_ = n;
        return output_;
    }

    /// Computes the gradients of all parameters for the batch of the last forward, and overwrites what was
    /// there. \param output_gradient the gradient of the loss with respect to the output, of the output's
    /// shape \param on_ready is called with the index of each parameter as soon as its gradient is complete:
    /// with the last parameter first, in descending order
    /// \throws ArgumentError where there was no forward, or the shape is not the output's
    template <std::invocable<std::size_t> OnReady>
    void backward(const Tensor& output_gradient, OnReady&& on_ready,
                  InputGradient input_gradient = InputGradient::skip) {
        if (batch_size_ == 0) throw ArgumentError("Sequential: backward needs a forward before it");
        require_shape("the output gradient", output_gradient, batch_size_, output_shape());
        Activation gradient = backend_.wrap_gradient(output_gradient);
        for (std::size_t i = layers_.size(); i-- > 0;) {
            const trace::Span span("backward of layer", i);
            layers_[i]->backward_parameters(gradient);
            const std::size_t first = i == 0 ? 0 : parameters_end_[i - 1];
            for (std::size_t p = parameters_end_[i]; p-- > first;) on_ready(p);
            const bool anyone_below = first > 0;
            if (!anyone_below && input_gradient == InputGradient::skip) return;
            gradient = layers_[i]->backward_input(gradient);
        }
        input_gradient_.resize(batch_size_, input_shape());
        backend_.store(gradient, input_gradient_);
    }

    /// The same, and tells nobody when a gradient is complete.
    void backward(const Tensor& output_gradient, InputGradient input_gradient = InputGradient::skip) {
        backward(
            output_gradient, [](std::size_t) {}, input_gradient);
    }

    /// What the last backward with InputGradient::compute found: the gradient of the input, of its shape.
    [[nodiscard]] const Tensor& input_gradient() const noexcept { return input_gradient_; }

    /// Calls `sink(ParameterRef)` for each parameter in registration order. The pointers are valid until
    /// set_value_storage or set_gradient_storage, or the end of the network.
    template <std::invocable<ParameterRef> Sink>
    void for_each_parameter(Sink&& sink) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            Parameter& parameter = *parameters_[i];
            sink(ParameterRef{.name = names_[i],
                              .shape = parameter.shape(),
                              .dtype = dtype_of<Scalar>,
                              .device = device_of(parameter.values()),
                              .count = parameter.count(),
                              .value = parameter.values().data(),
                              .gradient = parameter.gradient().data(),
                              .layout = parameter.layout()});
        }
    }

    /// How many parameters there are: a weight and a bias count as two.
    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }

    /// From now on the gradient of parameter `i` is written to `storage`, which outlives the network or the
    /// next call for `i`. Until then the network has memory of its own for it, and releases that here. \param
    /// storage as many elements as ParameterRef::count says; best aligned to 64 bytes \throws ArgumentError
    /// where it has another size
    void set_gradient_storage(std::size_t i, Elements storage) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the gradient storage", storage.size(), parameter.count());
        parameter.set_gradient_storage(storage);
    }

    /// From now on the values of parameter `i` lie in `storage`, to which they are copied, and which outlives
    /// the network or the next call for `i`: memory that a ShardedOptimizer writes, for one. The same sizes
    /// and errors.
    void set_value_storage(std::size_t i, Elements storage) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the value storage", storage.size(), parameter.count());
        parameter.set_value_storage(storage);
    }

    /// The values of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_values(std::size_t i) {
        std::vector<Scalar> values(element_count(parameter_at(i).shape()));
        parameter_at(i).export_values(values);
        return values;
    }

    /// The gradient of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_gradient(std::size_t i) {
        std::vector<Scalar> values(element_count(parameter_at(i).shape()));
        parameter_at(i).export_gradient(values);
        return values;
    }

    /// Sets the values of parameter `i` from row-major elements of its shape.
    /// \throws ArgumentError where there are more or fewer
    void set_parameter_values(std::size_t i, std::span<const Scalar> values) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the values", values.size(), element_count(parameter.shape()));
        parameter.import_values(values);
    }

    /// The shape of one sample, without the batch dimension.
    [[nodiscard]] const Shape& input_shape() const noexcept { return shapes_.front(); }

    /// The shape of one sample's output, without the batch dimension.
    [[nodiscard]] const Shape& output_shape() const noexcept { return shapes_.back(); }

    /// The layers as they were given to the constructor.
    [[nodiscard]] const std::vector<LayerSpec>& specs() const noexcept { return specs_; }

    /// The backend that computes the network.
    [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

  private:
    using Activation = typename Backend::Activation;
    using Parameter = typename Backend::Parameter;

    [[nodiscard]] static Device device_of(std::span<const Scalar>) { return {}; }

    [[nodiscard]] static Device device_of(const DeviceSpan<Scalar>& elements) { return elements.device(); }

    static void require_shape(const char* what, const Tensor& tensor, std::size_t n, const Shape& sample) {
        const std::span<const std::size_t> found = tensor.shape();
        if (!found.empty() && found[0] == n && std::ranges::equal(found.subspan(1), sample)) return;
        Shape expected{n};
        expected.insert(expected.end(), sample.begin(), sample.end());
        throw ArgumentError(dptk::detail::text("Sequential: ", what, " should be ",
                                               dptk::detail::shape_text(expected), ", but is ",
                                               dptk::detail::shape_text(found)));
    }

    void require_count(std::size_t i, const char* what, std::size_t found, std::size_t expected) const {
        if (found != expected)
            throw ArgumentError(dptk::detail::text("Sequential: ", what, " for parameter ", names_[i],
                                                   " should have ", expected, " elements, but has ", found));
    }

    Parameter& parameter_at(std::size_t i) {
        if (i >= parameters_.size())
            throw ArgumentError(dptk::detail::text("Sequential: there is no parameter ", i, "; there are ",
                                                   parameters_.size()));
        return *parameters_[i];
    }

    Backend backend_;
    std::vector<Shape> shapes_;
    std::vector<LayerSpec> specs_;
    std::vector<std::unique_ptr<typename Backend::Layer>> layers_;
    std::vector<Parameter*> parameters_;
    std::vector<std::string> names_;
    /// For each layer, the index after its last parameter.
    std::vector<std::size_t> parameters_end_;
    std::size_t batch_size_ = 0;
    Tensor output_;
    Tensor input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn
