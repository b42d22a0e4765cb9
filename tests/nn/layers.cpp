#include "dptk/nn/layers.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace dptk::nn;

namespace {

// Not [[nodiscard]], for calls that are expected to throw.
Shape after(const LayerSpec& spec, const Shape& input) {
    return output_shape(spec, input);
}

std::vector<Shape> through(const std::vector<LayerSpec>& specs, const Shape& input) {
    return shapes_through(specs, input);
}

}  // namespace

TEST_CASE("each layer computes its output shape") {
    CHECK(after(Linear{7}, {5}) == Shape{7});
    CHECK(after(Conv2d{.out_channels = 6, .kernel_size = 5, .padding = 2}, {1, 28, 28}) == Shape{6, 28, 28});
    CHECK(after(Conv2d{.out_channels = 4, .kernel_size = 3, .stride = 2}, {3, 8, 9}) == Shape{4, 3, 4});
    CHECK(after(ReLU{}, {3, 8, 9}) == Shape{3, 8, 9});
    CHECK(after(MaxPool2d{2}, {3, 7, 4}) == Shape{3, 3, 2});
    CHECK(after(Flatten{}, {3, 7, 4}) == Shape{84});
    CHECK(after(Flatten{}, {3}) == Shape{3});
}

TEST_CASE("a layer that does not fit its input reports the reason") {
    CHECK_THROWS_WITH_AS(after(Linear{7}, {3, 8, 8}),
                         "Linear needs an input {features}, but gets [3, 8, 8]; put a Flatten{} before it",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(after(Conv2d{.out_channels = 4, .kernel_size = 3}, {64}),
                         "Conv2d needs an input {channels, height, width}, but gets [64]",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(after(Conv2d{.out_channels = 4, .kernel_size = 7, .padding = 1}, {3, 8, 4}),
                         "Conv2d: a kernel of 7 x 7 is larger than the input [3, 8, 4] with a padding of 1",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(after(MaxPool2d{3}, {3, 8, 2}),
                         "MaxPool2d: a window of 3 x 3 is larger than the input [3, 8, 2]",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(after(MaxPool2d{2}, {8}), dptk::ArgumentError);
}

TEST_CASE("sizes of zero are refused") {
    CHECK_THROWS_WITH_AS(after(Linear{0}, {3}), "Linear: out_features must be at least 1, got 0",
                         dptk::ArgumentError);
    CHECK_THROWS_AS(after(Conv2d{.out_channels = 0, .kernel_size = 3}, {3, 8, 8}), dptk::ArgumentError);
    CHECK_THROWS_AS(after(Conv2d{.out_channels = 1, .kernel_size = 0}, {3, 8, 8}), dptk::ArgumentError);
    CHECK_THROWS_AS(after(Conv2d{.out_channels = 1, .kernel_size = 3, .stride = 0}, {3, 8, 8}),
                    dptk::ArgumentError);
    CHECK_THROWS_AS(after(MaxPool2d{0}, {3, 8, 8}), dptk::ArgumentError);
    CHECK_THROWS_AS(after(ReLU{}, {3, 0, 8}), dptk::ArgumentError);
    CHECK_THROWS_AS(after(ReLU{}, {}), dptk::ArgumentError);
}

TEST_CASE("shapes through a network name the layer that does not fit") {
    const std::vector<LayerSpec> good{Flatten{}, Linear{5}, ReLU{}};
    CHECK(through(good, {2, 3, 4}) == std::vector<Shape>{{2, 3, 4}, {24}, {5}, {5}});
    const std::vector<LayerSpec> bad{ReLU{}, Linear{5}};
    CHECK_THROWS_WITH_AS(
        through(bad, {2, 3, 4}),
        "layer 1: Linear needs an input {features}, but gets [2, 3, 4]; put a Flatten{} before it",
        dptk::ArgumentError);
    CHECK_THROWS_AS(through({}, {2}), dptk::ArgumentError);
}
