#include "dptk/nn/models.hpp"

#include <doctest/doctest.h>

#include <cstddef>

#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"

using namespace dptk::nn;

namespace {

std::size_t weights_in(const char* name, const Shape& input) {
    Network<Reference<float>> net(make_model(name, {.input = input, .classes = 10}), 1);
    std::size_t count = 0;
    net.for_each_parameter(
        [&](const dptk::ParameterRef& parameter) { count += dptk::element_count(parameter.shape); });
    return count;
}

}  // namespace

TEST_CASE("the models have as many parameters as their PyTorch counterparts") {
    CHECK(weights_in("mlp", {1, 28, 28}) == 235146);
    CHECK(weights_in("lenet", {1, 28, 28}) == 107786);
    CHECK(weights_in("convnet", {3, 32, 32}) == 4275594);
    CHECK(weights_in("convnet_mnist", {1, 28, 28}) == 29034);
}

TEST_CASE("the models fit images down to four by four") {
    for (const char* name : {"mlp", "lenet", "convnet", "convnet_mnist"})
        CHECK(make_model(name, {.input = {1, 4, 4}, .classes = 7}).output_shape() == Shape{7});
}

TEST_CASE("an unknown model is refused with a list of the names") {
    CHECK_THROWS_WITH_AS(static_cast<void>(make_model("resnet", {})),
                         "unknown model \"resnet\": expected one of mlp, lenet, convnet, convnet_mnist, "
                         "resnet18, resnet34, resnet50, resnet101, resnet152, resnest50, mobilenet_v2",
                         dptk::ArgumentError);
}
