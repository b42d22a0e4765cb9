/// All operations in plain loops, for float and double: the definition that other backends are compared with,
/// and what they run for operations that they lack.
#pragma once

#include <concepts>
#include <variant>

#include "dptk/core/config.hpp"
#include "dptk/nn/custom_operation.hpp"
#include "dptk/nn/detail/memory_plan.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/reference/batch_norm.hpp"
#include "dptk/nn/reference/convolution.hpp"
#include "dptk/nn/reference/elementwise.hpp"
#include "dptk/nn/reference/linear.hpp"
#include "dptk/nn/reference/pool.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Computes the output of an operation. A Flatten's is its input: see memory_use().
template <std::floating_point T>
void forward(const Operation& operation, const HostCall<T>& call) {
    std::visit(
        [&]<class Op>(const Op& one) {
            if constexpr (PointwiseOperation<Op>) {
                nn::detail::pointwise_forward<Op>(call);
            } else if constexpr (std::same_as<Op, Custom>) {
                one.operation->forward(call);
            } else if constexpr (!std::same_as<Op, Input> && !std::same_as<Op, Flatten>) {
                reference::forward(one, call);
            }
        },
        operation);
}

/// Adds to the gradients of an operation's parameters.
template <std::floating_point T>
void backward_parameters(const Operation& operation, const HostCall<T>& call) {
    std::visit(
        [&]<class Op>(const Op& one) {
            if constexpr (std::same_as<Op, Custom>) {
                one.operation->backward_parameters(call);
            } else if constexpr (std::same_as<Op, Linear> || std::same_as<Op, Conv2d> ||
                                 std::same_as<Op, BatchNorm2d>) {
                reference::backward_parameters(one, call);
            }
        },
        operation);
}

/// Adds to the gradients of an operation's inputs. Those of a Flatten and an Add are the output's gradient:
/// see memory_use().
template <std::floating_point T>
void backward_inputs(const Operation& operation, const HostCall<T>& call) {
    std::visit(
        [&]<class Op>(const Op& one) {
            if constexpr (PointwiseOperation<Op>) {
                nn::detail::pointwise_backward<Op>(call);
            } else if constexpr (std::same_as<Op, Custom>) {
                one.operation->backward_inputs(call);
            } else if constexpr (!std::same_as<Op, Input> && !std::same_as<Op, Flatten> &&
                                 !std::same_as<Op, Add>) {
                reference::backward_inputs(one, call);
            }
        },
        operation);
}

/// Returns what the functions above do with their arguments.
[[nodiscard]] inline nn::detail::MemoryUse memory_use(const Operation& operation) {
    return std::visit(
        []<class Op>(const Op&) -> nn::detail::MemoryUse {
            if constexpr (nn::detail::DerivativeOfOutput<Op> || std::same_as<Op, Softmax>)
                return {.keeps_output = true, .overwritable_inputs = 1};
            if constexpr (std::same_as<Op, Flatten>) return {.is_view = true, .passes_gradient = true};
            if constexpr (std::same_as<Op, Add>) return {.overwritable_inputs = 2, .passes_gradient = true};
            if constexpr (std::same_as<Op, Dropout>) return {.overwritable_inputs = 1};
            if constexpr (std::same_as<Op, MaxPool2d> || std::same_as<Op, AvgPool2d> ||
                          std::same_as<Op, GlobalAvgPool2d> || std::same_as<Op, RadixSum>)
                return {};
            return {.keeps_inputs = true, .keeps_output = std::same_as<Op, Custom>};
        },
        operation);
}

}  // namespace DPTK_NAMESPACE::nn::reference
