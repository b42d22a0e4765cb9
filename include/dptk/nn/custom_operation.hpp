/// custom(), for operations that a program defines. They run on the host: on the reference backend, and
/// between the operations of oneDNN.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

/// Implements CustomOperation with the members of Op, whose functions are templates for float and double.
template <class Op>
class CustomOperationOf final : public CustomOperation {
  public:
    explicit CustomOperationOf(Op op) : op_(std::move(op)) {}

    std::string_view name() const noexcept override { return Op::name; }

    Shape output_shape(InputShapes inputs) const override {
        if constexpr (PointwiseOperation<Op>) {
            if (inputs.size() != 1)
                throw ArgumentError(
                    dptk::detail::text(Op::name, ": expected 1 input, found ", inputs.size()));
            return inputs[0];
        } else {
            return op_.output_shape(inputs);
        }
    }

    std::vector<ParameterSpec> parameters(InputShapes inputs) const override {
        if constexpr (requires { op_.parameters(inputs); }) return op_.parameters(inputs);
        return {};
    }

    void forward(const HostCall<float>& call) const override { run_forward(call); }
    void forward(const HostCall<double>& call) const override { run_forward(call); }
    void backward_parameters(const HostCall<float>& call) const override { run_backward_parameters(call); }
    void backward_parameters(const HostCall<double>& call) const override { run_backward_parameters(call); }
    void backward_inputs(const HostCall<float>& call) const override { run_backward_inputs(call); }
    void backward_inputs(const HostCall<double>& call) const override { run_backward_inputs(call); }

  private:
    template <std::floating_point T>
    void run_forward(const HostCall<T>& call) const {
        if constexpr (PointwiseOperation<Op>) {
            pointwise_forward<Op>(call);
        } else {
            op_.forward(call);
        }
    }

    template <std::floating_point T>
    void run_backward_parameters(const HostCall<T>& call) const {
        if constexpr (requires { op_.backward_parameters(call); }) op_.backward_parameters(call);
    }

    template <std::floating_point T>
    void run_backward_inputs(const HostCall<T>& call) const {
        if constexpr (PointwiseOperation<Op>) {
            pointwise_backward<Op>(call);
        } else {
            op_.backward_inputs(call);
        }
    }

    Op op_;
};

}  // namespace detail

/// Returns an operation for Graph::add_operation() that is defined by the program. Op is either a
/// PointwiseOperation, or it has
/// - `static constexpr std::string_view name`, for messages
/// - `Shape output_shape(InputShapes) const`, which throws ArgumentError if the operation does not fit
/// - `template <class T> void forward(const HostCall<T>&) const`, for T = float and double
/// - `template <class T> void backward_inputs(const HostCall<T>&) const`
/// - and if it has parameters, `std::vector<ParameterSpec> parameters(InputShapes) const` and
///   `template <class T> void backward_parameters(const HostCall<T>&) const`
template <class Op>
[[nodiscard]] Custom custom(Op op) {
    return {std::make_shared<const detail::CustomOperationOf<Op>>(std::move(op))};
}

}  // namespace DPTK_NAMESPACE::nn
