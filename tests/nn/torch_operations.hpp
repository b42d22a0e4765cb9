/// The comparison of a backend with what record_operations.py has recorded of PyTorch.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "dptk/nn/network.hpp"
#include "operation_cases.hpp"
#include "support.hpp"

namespace DPTK_NAMESPACE::nn::testing {

/// Checks outputs, gradients and buffers of all cases; `tolerance` is the maximum of difference().
template <class Backend>
void check_torch_operations(double tolerance) {
    using T = typename Backend::Scalar;
    const RecordedOutputs recorded("torch_operations.txt");
    for (const OperationCase& c : operation_cases()) {
        for (const std::size_t batch : {std::size_t{3}, std::size_t{1}}) {
            const std::string name = c.name + '.' + std::to_string(batch) + '/';
            CAPTURE(name);
            Network<Backend> net(c.graph, 1);
            set_case_parameters(net);
            const Tensor<T> input = pattern_tensor<T>(100, with_batch(batch, net.input_shape()), 8);
            const Tensor<T>& output = net.forward(input);
            CHECK(difference(output.values(), recorded.at(name + "output")) < tolerance);
            net.backward(pattern_tensor<T>(200, output.shape()), InputGradient::compute);
            CHECK(difference(net.input_gradient().values(), recorded.at(name + "input_gradient")) <
                  tolerance);
            std::size_t i = 0;
            net.for_each_parameter([&](const ParameterRef& parameter) {
                CAPTURE(parameter.name);
                CHECK(difference(net.parameter_gradient(i++), recorded.at(name + parameter.name)) <
                      tolerance);
            });
            net.for_each_buffer([&](const NamedBuffer& buffer) {
                CAPTURE(buffer.name);
                const std::vector<double>& expected = recorded.at(name + buffer.name);
                if (buffer.data.dtype == DType::i64) {
                    CHECK(static_cast<double>(*static_cast<const std::int64_t*>(buffer.data.data)) ==
                          expected[0]);
                } else {
                    const auto* const values = static_cast<const T*>(buffer.data.data);
                    CHECK(difference(std::span(values, buffer.data.count), expected) < tolerance);
                }
            });
            net.set_mode(Mode::evaluate);
            CHECK(difference(net.forward(input).values(), recorded.at(name + "evaluated")) < tolerance);
        }
    }
}

}  // namespace DPTK_NAMESPACE::nn::testing
