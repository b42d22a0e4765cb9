#include "dptk/prune/slim.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>

#include <string>
#include <vector>

#include "support.hpp"
#include "support/ranks.hpp"

using namespace dptk::nn;
using namespace dptk::nn::testing;

namespace {

Graph one_norm() {
    return sequential({1, 4, 4}, {Conv2d{3}, BatchNorm2d{}, ReLU{}, Flatten{}, Linear{2}});
}

template <class Net>
std::vector<dptk::ParameterRef> parameters_of_net(Net& net) {
    std::vector<dptk::ParameterRef> all;
    net.for_each_parameter([&](const dptk::ParameterRef& parameter) { all.push_back(parameter); });
    return all;
}

template <class Scalar>
void check_signs() {
    Network<Reference<Scalar>> net(one_norm(), 1);
    constexpr std::size_t weight = 2;  // after "0.weight" and "0.bias"
    net.set_parameter_values(weight, std::vector<Scalar>{2, -3, 0});
    std::vector<dptk::ParameterRef> parameters = parameters_of_net(net);
    for (const dptk::ParameterRef& parameter : parameters)
        for (Scalar& gradient : parameter.gradients<Scalar>()) gradient = 1;
    add_slim_gradients(net.graph(), parameters, 0.25);
    CHECK(net.parameter_gradient(weight) == std::vector<Scalar>{1.25, 0.75, 1});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (i == weight) continue;
        for (const Scalar gradient : net.parameter_gradient(i)) CHECK(gradient == 1);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("the gradient of the penalty is added for weights of batch norms only", Scalar, float,
                   double) {
    check_signs<Scalar>();
}

TEST_CASE("parameters of another network are an error") {
    Net net(one_norm(), 1);
    std::vector<dptk::ParameterRef> parameters = parameters_of_net(net);
    std::string text;
    parameters[2].dtype = dptk::DType::f16;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { add_slim_gradients(net.graph(), parameters, 0.1); }));
    CHECK(test::contains(text, "1.weight"));
    parameters.erase(parameters.begin() + 2);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { add_slim_gradients(net.graph(), parameters, 0.1); }));
    CHECK(text == "add_slim_gradients: expected the parameter \"1.weight\", found none of this name");
}
