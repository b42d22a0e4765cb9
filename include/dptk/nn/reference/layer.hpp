/// The layers of a network in plain loops, and their plans.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/reference/host_operation.hpp"
#include "dptk/nn/reference/parameter.hpp"

namespace DPTK_NAMESPACE::nn::reference {

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

    Plan(HostOperation<T> operation, const nn::detail::MemoryUse& use) : operation_(std::move(operation)) {
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
    }

    HostOperation<T> operation_;
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
        return std::make_unique<Plan<T>>(HostOperation<T>(info_, statistics_, batch, parameters()),
                                         memory_use(info_.operation));
    }

  private:
    OperationInfo info_;
    RunningStatistics<T>* statistics_;
    std::vector<std::unique_ptr<Parameter<T>>> parameters_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
