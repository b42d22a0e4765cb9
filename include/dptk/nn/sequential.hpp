/// Sequential, a network of consecutive layers, with forward and backward and without an autograd tape. The
/// caller may supply the memory of gradients, such as DDP's buckets, and a callback reports each gradient
/// as soon as it is complete.
#pragma once

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
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn {

/// Whether backward also computes the gradient of the network's input, which training does not need.
enum class InputGradient { skip, compute };

/// Consecutive layers on a backend: `Sequential<Reference<double>>`, `Sequential<Cpu>`. Not thread-safe.
/// Parameters are numbered in registration order, weight before bias, and named as in PyTorch's
/// nn.Sequential: "0.weight", "0.bias", "2.weight".
template <NetworkBackend Backend>
class Sequential {
  public:
    using Scalar = typename Backend::Scalar;  ///< The element type of parameters, inputs and outputs.
    /// The tensor type, in host or device memory, depending on the backend.
    using Tensor = typename Backend::Tensor;
    /// A view of a parameter's elements, in the same kind of memory as Tensor.
    using Elements = typename Backend::Elements;

    /// Makes a network of the layers `specs` for samples of `input_shape`, which excludes the batch
    /// dimension. `seed` determines the initial values, which are the same on all backends; see
    /// initial_values(). Throws ArgumentError if a layer does not fit its input, and BackendError if the
    /// backend's library rejects a layer.
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

    /// Returns the output [n, ...output_shape()] for the input [n, ...input_shape()]. n may differ between
    /// calls; resources for a batch size are created at its first use and kept. The input must stay valid
    /// and unchanged until the last backward for it. The output is valid until the next forward. Throws
    /// ArgumentError if the input has another shape, or if n is 0.
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

    /// Computes the gradients of all parameters for the batch of the last forward, and overwrites the
    /// previous gradients. `output_gradient` is the gradient of the loss with respect to the output, and
    /// has the output's shape. `on_ready` is called with the index of each parameter as soon as its
    /// gradient is complete, in descending order of the indices. Throws ArgumentError if there was no
    /// forward, or if the shape is not the output's.
    template <std::invocable<std::size_t> OnReady>
    void backward(const Tensor& output_gradient, OnReady&& on_ready,
                  InputGradient input_gradient = InputGradient::skip) {
        if (batch_size_ == 0) throw ArgumentError("Sequential: call forward() before backward()");
        require_shape("the output gradient", output_gradient, batch_size_, output_shape());
        Activation gradient = backend_.wrap_gradient(output_gradient);
        for (std::size_t i = layers_.size(); i-- > 0;) {
            const trace::Span span("backward of layer", i);
            layers_[i]->backward_parameters(gradient);
            const std::size_t first = i == 0 ? 0 : parameters_end_[i - 1];
            for (std::size_t p = parameters_end_[i]; p-- > first;) on_ready(p);
            const bool has_parameters_below = first > 0;
            if (!has_parameters_below && input_gradient == InputGradient::skip) return;
            gradient = layers_[i]->backward_input(gradient);
        }
        input_gradient_.resize(batch_size_, input_shape());
        backend_.store(gradient, input_gradient_);
    }

    /// Computes the gradients of all parameters, without a callback.
    void backward(const Tensor& output_gradient, InputGradient input_gradient = InputGradient::skip) {
        backward(
            output_gradient, [](std::size_t) {}, input_gradient);
    }

    /// Returns the gradient of the input from the last backward with InputGradient::compute, in the input's
    /// shape.
    [[nodiscard]] const Tensor& input_gradient() const noexcept { return input_gradient_; }

    /// Calls `sink(ParameterRef)` for each parameter in registration order. The pointers are valid until
    /// set_value_storage() or set_gradient_storage() is called, or the network is destroyed.
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

    /// Returns the number of parameters: a weight and a bias count as two.
    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }

    /// Makes subsequent gradients of parameter `i` be written to `storage`. Releases the network's own memory
    /// for this gradient. `storage` must outlive the network or the next call for `i`, unless `owner` keeps
    /// it alive. `storage` has ParameterRef::count elements and should be aligned to 64 bytes. Throws
    /// ArgumentError if its size differs.
    void set_gradient_storage(std::size_t i, Elements storage, std::shared_ptr<const void> owner = nullptr) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the gradient storage", storage.size(), parameter.count());
        parameter.set_gradient_storage(storage);
        gradient_owners_.resize(parameters_.size());
        gradient_owners_[i] = std::move(owner);
    }

    /// Moves the values of parameter `i` to `storage`, for example memory that a ShardedOptimizer updates.
    /// `storage` must stay valid until the network is destroyed or the next call for `i` has returned. It
    /// must have ParameterRef::count elements, otherwise throws ArgumentError, and should be aligned to 64
    /// bytes.
    void set_value_storage(std::size_t i, Elements storage) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the value storage", storage.size(), parameter.count());
        parameter.set_value_storage(storage);
    }

    /// Returns the values of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_values(std::size_t i) {
        std::vector<Scalar> values(element_count(parameter_at(i).shape()));
        parameter_at(i).export_values(values);
        return values;
    }

    /// Returns the gradient of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_gradient(std::size_t i) {
        std::vector<Scalar> values(element_count(parameter_at(i).shape()));
        parameter_at(i).export_gradient(values);
        return values;
    }

    /// Sets the values of parameter `i` from row-major elements of its shape. Throws ArgumentError if the
    /// number of elements differs.
    void set_parameter_values(std::size_t i, std::span<const Scalar> values) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the values", values.size(), element_count(parameter.shape()));
        parameter.import_values(values);
    }

    /// Returns the shape of one sample, without the batch dimension.
    [[nodiscard]] const Shape& input_shape() const noexcept { return shapes_.front(); }

    /// Returns the shape of one sample's output, without the batch dimension.
    [[nodiscard]] const Shape& output_shape() const noexcept { return shapes_.back(); }

    /// Returns the layers that were passed to the constructor.
    [[nodiscard]] const std::vector<LayerSpec>& specs() const noexcept { return specs_; }

    /// Returns the backend that computes the network.
    [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

  private:
    using Activation = typename Backend::Activation;
    using Parameter = typename Backend::Parameter;

    [[nodiscard]] static Device device_of(std::span<const Scalar>) { return {}; }

    [[nodiscard]] static Device device_of(const DeviceSpan<Scalar>& elements) { return elements.device(); }

    static void require_shape(const char* what, const Tensor& tensor, std::size_t n, const Shape& sample) {
        const std::span<const std::size_t> found = tensor.shape();
        if (!found.empty() && found[0] == n && dptk::detail::equal(found.subspan(1), sample)) return;
        Shape expected{n};
        expected.insert(expected.end(), sample.begin(), sample.end());
        throw ArgumentError(dptk::detail::text("Sequential: ", what, " should be ",
                                               dptk::detail::shape_text(expected), ", but is ",
                                               dptk::detail::shape_text(found)));
    }

    void require_count(std::size_t i, const char* what, std::size_t found, std::size_t expected) const {
        if (found != expected)
            throw ArgumentError(dptk::detail::text("Sequential: ", what, " for parameter ", names_[i],
                                                   ": expected ", expected, " elements, got ", found));
    }

    Parameter& parameter_at(std::size_t i) {
        if (i >= parameters_.size())
            throw ArgumentError(dptk::detail::text("Sequential: parameter index ", i,
                                                   " is out of range: there are ", parameters_.size(),
                                                   " parameters"));
        return *parameters_[i];
    }

    Backend backend_;
    std::vector<Shape> shapes_;
    std::vector<LayerSpec> specs_;
    std::vector<std::unique_ptr<typename Backend::Layer>> layers_;
    std::vector<Parameter*> parameters_;
    std::vector<std::shared_ptr<const void>> gradient_owners_;  // by parameter
    std::vector<std::string> names_;
    /// For each layer, the index after its last parameter.
    std::vector<std::size_t> parameters_end_;
    std::size_t batch_size_ = 0;
    Tensor output_;
    Tensor input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn
