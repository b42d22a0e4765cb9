/// Reference, the backend in plain loops, without dependencies. The f64 version is the standard that tests
/// compare other backends with, and is tested against finite differences itself.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/reference/host_operation.hpp"
#include "dptk/nn/reference/parameter.hpp"

namespace DPTK_NAMESPACE::nn {

namespace reference {

/// The number of elements of a value, which is row-major.
using Layout = std::size_t;

/// Refers to the elements of a value. Copies remain equal when one of them is bound.
template <std::floating_point T>
using Memory = std::shared_ptr<std::span<T>>;

/// A layer for one batch size.
template <std::floating_point T>
class Plan final : public OperationPlan<Layout, Memory<T>> {
  public:
    using Arguments = nn::Arguments<Memory<T>>;

    Plan(HostOperation<T> operation, const std::vector<std::unique_ptr<Parameter<T>>>& parameters,
         const nn::detail::MemoryUse& use)
        : operation_(std::move(operation)), parameters_(parameters) {
        this->output = operation_.output_count();
        this->use = use;
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override {
        std::vector<Layout> layouts;
        for (std::size_t k = 0; k < operation_.inputs.size(); ++k)
            layouts.push_back(operation_.input_count(k));
        return layouts;
    }

    void forward(const Arguments& arguments, const Pass& pass) override {
        if (this->use.is_view) return;
        set(arguments);
        operation_.forward(pass);
    }

    void backward_parameters(const Arguments& arguments, const Pass& pass) override {
        set(arguments);
        operation_.backward_parameters(pass);
    }

    void backward_inputs(const Arguments& arguments, const Pass& pass) override {
        if (this->use.passes_gradient) return;
        set(arguments);
        operation_.backward_inputs(pass);
    }

  private:
    void set(const Arguments& arguments) {
        operation_.output = arguments.output->data();
        operation_.output_gradient = arguments.output_gradient->data();
        for (std::size_t k = 0; k < arguments.inputs.size(); ++k) {
            operation_.inputs[k] = arguments.inputs[k]->data();
            operation_.input_gradients[k] = arguments.input_gradients[k]->data();
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            operation_.parameters[i] = parameters_[i]->values().data();
            operation_.parameter_gradients[i] = parameters_[i]->gradient().data();
        }
    }

    HostOperation<T> operation_;
    const std::vector<std::unique_ptr<Parameter<T>>>& parameters_;
};

template <std::floating_point T>
class Layer {
  public:
    explicit Layer(const LayerRequest<Layout, T>& request)
        : info_(request.info), statistics_(request.statistics) {
        const std::vector<ParameterSpec> specs = parameters_of(info_.operation, info_.inputs);
        for (std::size_t i = 0; i < specs.size(); ++i)
            parameters_.push_back(std::make_unique<Parameter<T>>(specs[i].shape, request.initial[i]));
    }

    std::vector<Parameter<T>*> parameters() {
        std::vector<Parameter<T>*> all;
        for (const auto& parameter : parameters_) all.push_back(parameter.get());
        return all;
    }

    [[nodiscard]] Layout nominal_output() const { return 0; }

    std::unique_ptr<OperationPlan<Layout, Memory<T>>> plan(std::size_t batch,
                                                           std::span<const Layout> /*inputs*/) {
        return std::make_unique<Plan<T>>(HostOperation<T>(info_, statistics_, batch), parameters_,
                                         memory_use(info_.operation));
    }

  private:
    OperationInfo info_;
    RunningStatistics<T>* statistics_;
    std::vector<std::unique_ptr<Parameter<T>>> parameters_;
};

}  // namespace reference

/// The backend for `Network<Reference<T>>`. It uses one thread, and row-major memory everywhere.
template <std::floating_point T>
class Reference {
  public:
    using Scalar = T;
    using Tensor = dptk::Tensor<T>;
    using Elements = std::span<T>;
    using Layout = reference::Layout;
    using Memory = reference::Memory<T>;
    using Parameter = reference::Parameter<T>;
    using Layer = reference::Layer<T>;

    static constexpr bool copies_tensors = false;

    [[nodiscard]] bool fuses_relu(const Operation& /*operation*/) const { return false; }

    [[nodiscard]] Layout nominal_input(const Graph& /*graph*/) const { return 0; }

    [[nodiscard]] Layout input_layout(const Graph& graph, std::size_t batch) const {
        return batch * element_count(graph.input_shape());
    }

    [[nodiscard]] Layout output_gradient_layout(const Layout& output) const { return output; }

    std::unique_ptr<Layer> make_layer(const LayerRequest<Layout, T>& request) {
        return std::make_unique<Layer>(request);
    }

    std::byte* reserve(std::size_t bytes) { return memory_.reserve(bytes); }

    [[nodiscard]] std::size_t bytes(const Layout& layout) const { return layout * sizeof(T); }

    [[nodiscard]] Memory make_memory(const Layout& layout) const {
        return std::make_shared<std::span<T>>(static_cast<T*>(nullptr), layout);
    }

    void bind(Memory& memory, std::byte* address) const {
        *memory = {reinterpret_cast<T*>(address), memory->size()};
    }

    /// The network only reads memory that is bound to tensors.
    void load(const Tensor& tensor, Memory& memory) const {
        *memory = {const_cast<T*>(tensor.data()), memory->size()};
    }

    [[nodiscard]] auto plan_store(const Memory& memory) const {
        return [memory](Tensor& tensor) { dptk::detail::copy(*memory, tensor.values().begin()); };
    }

    [[nodiscard]] auto plan_sum(const Memory& a, const Memory& b, const Memory& sum) const {
        return [a, b, sum] {
            for (std::size_t i = 0; i < sum->size(); ++i) (*sum)[i] = (*a)[i] + (*b)[i];
        };
    }

  private:
    AlignedArray<std::byte> memory_;
};

}  // namespace DPTK_NAMESPACE::nn
