#include "dptk/nn/models.hpp"

#include <doctest/doctest.h>

#include <cstddef>

#include "dptk/nn/reference/backend.hpp"
#include "dptk/nn/sequential.hpp"

using namespace dptk::nn;

namespace {

std::size_t weights_in(const char* name, const Shape& input) {
    Sequential<Reference<float>> net(make_model(name, 10), input, 1);
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
}

TEST_CASE("the models fit images down to four by four") {
    for (const char* name : {"mlp", "lenet", "convnet"})
        CHECK(shapes_through(make_model(name, 7), {1, 4, 4}).back() == Shape{7});
}

TEST_CASE("an unknown model is refused with a list of the names") {
    CHECK_THROWS_WITH_AS(static_cast<void>(make_model("resnet", 10)),
                         "unknown model \"resnet\": expected one of mlp, lenet, convnet",
                         dptk::ArgumentError);
}
