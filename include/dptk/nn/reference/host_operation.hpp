/// HostOperation, an operation of a network with the memory that the functions of nn/reference need.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/reference/operations.hpp"
#include "dptk/nn/reference/parameter.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// An operation for one batch size, on row-major arrays that the caller sets before each call.
template <std::floating_point T>
class HostOperation {
  public:
    /// All arguments must outlive this object. `parameters` are pointers to row-major parameters.
    template <class Parameters>
    HostOperation(const OperationInfo& info, RunningStatistics<T>* statistics, std::size_t batch,
                  const Parameters& parameters)
        : inputs(info.inputs.size()),
          input_gradients(info.inputs.size()),
          info_(info),
          statistics_(statistics),
          batch_(batch),
          parameters_(parameters.begin(), parameters.end()),
          parameter_values_(parameters.size()),
          parameter_gradients_(parameters.size()) {}

    std::vector<const T*> inputs;
    T* output = nullptr;
    const T* output_gradient = nullptr;
    std::vector<T*> input_gradients;

    /// Returns the number of elements of input `k`.
    [[nodiscard]] std::size_t input_count(std::size_t k) const {
        return batch_ * element_count(info_.inputs[k]);
    }

    /// Returns the number of elements of the output.
    [[nodiscard]] std::size_t output_count() const { return batch_ * element_count(info_.output); }

    void forward(const Pass& pass) { reference::forward(info_.operation, call(pass)); }

    void backward_parameters(const Pass& pass) {
        for (ParameterMemory<T>* const parameter : parameters_) parameter->zero_gradient();
        reference::backward_parameters(info_.operation, call(pass));
    }

    void backward_inputs(const Pass& pass) {
        for (std::size_t k = 0; k < inputs.size(); ++k) std::fill_n(input_gradients[k], input_count(k), T{0});
        reference::backward_inputs(info_.operation, call(pass));
    }

  private:
    [[nodiscard]] HostCall<T> call(const Pass& pass) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            parameter_values_[i] = parameters_[i]->values().data();
            parameter_gradients_[i] = parameters_[i]->gradient().data();
        }
        return {.batch = batch_,
                .shapes = info_.inputs,
                .output_shape = info_.output,
                .inputs = inputs,
                .output = {output, output_count()},
                .output_gradient = {output_gradient, output_count()},
                .input_gradients = input_gradients,
                .parameters = parameter_values_,
                .parameter_gradients = parameter_gradients_,
                .pass = pass,
                .node = info_.node,
                .saved = saved_,
                .statistics = statistics_};
    }

    const OperationInfo& info_;
    RunningStatistics<T>* statistics_;
    std::size_t batch_;
    std::vector<ParameterMemory<T>*> parameters_;
    std::vector<const T*> parameter_values_;
    std::vector<T*> parameter_gradients_;
    SavedValues<T> saved_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
