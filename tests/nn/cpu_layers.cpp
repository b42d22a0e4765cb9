#include <doctest/doctest.h>
#include <dptk/nn/cpu/max_pool.hpp>
#include <dptk/nn/cpu/small_convolution.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu_support.hpp"
#include "operation_cases.hpp"

using namespace dptk::nn;
using testing::check_against_reference;

TEST_CASE("all operations on oneDNN compute what the reference does") {
    for (const testing::OperationCase& c : testing::operation_cases()) {
        CAPTURE(c.name);
        for (const Mode mode : {Mode::train, Mode::evaluate})
            check_against_reference(c.graph, 5e-5, {8, 3, 17, 3, 1}, mode);
    }
}

TEST_CASE("Linear on oneDNN computes what the reference does") {
    SUBCASE("alone") {
        check_against_reference({Linear{10}}, {37});
    }
    SUBCASE("to one feature") {
        check_against_reference({Linear{1}}, {5});
    }
    SUBCASE("from one feature") {
        check_against_reference({Linear{17}}, {1});
    }
    SUBCASE("twice") {
        check_against_reference({Linear{64}, Linear{48}}, {96});
    }
    SUBCASE("to as many features that rows of the weight begin multiples of 2 KiB apart") {
        check_against_reference({Linear{512}, ReLU{}, Linear{1024, false}, Linear{512}}, {70});
        check_against_reference({Linear{512}}, {1});
    }
}

TEST_CASE("Conv2d on oneDNN computes what the reference does, for any number of channels") {
    for (const std::size_t in : {1U, 3U, 8U, 17U, 32U}) {
        for (const std::size_t out : {1U, 3U, 17U, 32U}) {
            CAPTURE(in);
            CAPTURE(out);
            check_against_reference({Conv2d{.out_channels = out, .kernel_size = 3, .padding = 1}},
                                    {in, 6, 7});
        }
    }
}

TEST_CASE("Conv2d on oneDNN supports all kernels, strides and paddings") {
    SUBCASE("1 x 1") {
        check_against_reference({Conv2d{.out_channels = 16, .kernel_size = 1}}, {16, 5, 5});
    }
    SUBCASE("5 x 5 that keeps the size") {
        check_against_reference({Conv2d{.out_channels = 6, .kernel_size = 5, .padding = 2}}, {1, 12, 12});
    }
    SUBCASE("no padding") {
        check_against_reference({Conv2d{.out_channels = 5, .kernel_size = 4}}, {3, 9, 6});
    }
    SUBCASE("a stride that leaves pixels over") {
        check_against_reference({Conv2d{.out_channels = 8, .kernel_size = 3, .stride = 2, .padding = 1}},
                                {16, 8, 8});
    }
    SUBCASE("a stride larger than the kernel") {
        check_against_reference({Conv2d{.out_channels = 3, .kernel_size = 2, .stride = 3}}, {4, 9, 10});
    }
}

TEST_CASE("Conv2d on oneDNN computes what the reference does on images of few pixels") {
    SUBCASE("one pixel, so that most of the kernel meets padding") {
        check_against_reference({Conv2d{.out_channels = 70, .kernel_size = 3, .padding = 1}}, {65, 1, 1});
    }
    SUBCASE("after a convolution and before a ReLU") {
        check_against_reference(
            {Conv2d{.out_channels = 64, .kernel_size = 1},
             Conv2d{.out_channels = 80, .kernel_size = 3, .padding = 1}, ReLU{}, Flatten{}, Linear{5}},
            {3, 2, 2});
    }
    SUBCASE("without a bias, before a batch norm and after another small image") {
        check_against_reference(
            {Conv2d{.out_channels = 96, .kernel_size = 3, .padding = 1, .bias = false}, BatchNorm2d{}, ReLU{},
             Conv2d{.out_channels = 64, .kernel_size = 3, .padding = 1}},
            {64, 4, 4});
    }
    SUBCASE("a stride") {
        check_against_reference({Conv2d{.out_channels = 64, .kernel_size = 3, .stride = 2, .padding = 1}},
                                {64, 8, 7});
    }
    SUBCASE("rectangles, with strides and distances that differ") {
        check_against_reference({Conv2d{.out_channels = 66,
                                        .kernel_size = {2, 3},
                                        .stride = {2, 1},
                                        .padding = {0, 2},
                                        .dilation = {1, 2}}},
                                {64, 5, 4});
    }
    SUBCASE("without padding") {
        check_against_reference({Conv2d{.out_channels = 64, .kernel_size = 5}}, {64, 6, 7});
    }
    SUBCASE("frozen, and with a result that two operations use") {
        Graph graph({64, 2, 2});
        const Value first = graph.conv2d("a", graph.input(), {.out_channels = 64, .padding = 1});
        const Value second = graph.conv2d("b", first, {.out_channels = 64, .padding = 1});
        graph.add(first, second);
        check_against_reference(Cpu(), graph, testing::cpu_tolerance, {8, 3}, Mode::train, {2, 3});
    }
}

TEST_CASE("with AVX2, convolutions on few pixels and wide products have layouts of their own") {
    if (dnnl::get_effective_cpu_isa() != dnnl::cpu_isa::avx2) {
        MESSAGE("SKIPPED: oneDNN computes with other instructions");
        return;
    }
    const auto layout_of_weight = [](const Graph& graph) {
        std::vector<std::uint64_t> layouts;
        Network<Cpu>(graph, 1).for_each_parameter(
            [&](const dptk::ParameterRef& parameter) { layouts.push_back(parameter.layout); });
        return layouts[0];
    };
    const std::size_t channels = std::max<std::size_t>(64, 32 * cpu::TapProducts::threads());
    const auto dim = static_cast<dnnl::memory::dim>(channels);
    CHECK(layout_of_weight(sequential({channels, 2, 2},
                                      {Conv2d{.out_channels = channels, .kernel_size = 3, .padding = 1}})) ==
          cpu::layout_hash(cpu::SmallConv2dPlan::weight_layout({dim, dim, 3, 3})));
    if (DNNL_VERSION_MAJOR < 3)
        CHECK(layout_of_weight(sequential({40}, {Linear{512}})) == dptk::padded_columns(528));
}

TEST_CASE("memory for a parameter gets zeros in its padding, whatever it has contained") {
    Network<Cpu> net(sequential({40}, {Linear{512}}), 1);
    const std::vector<std::vector<bool>> padding = testing::padding_of(net);
    std::vector<float> elements(padding[0].size(), std::numeric_limits<float>::quiet_NaN());
    net.from_row_major(0, net.parameter_values(0), elements);
    CHECK(testing::padding_is_zero(padding[0], elements.data()));
}

TEST_CASE("operations with layouts of their own compute the same with row-major parameters") {
    for (const Graph& graph : {sequential({64, 3, 3}, {Conv2d{.out_channels = 64, .kernel_size = 3}}),
                               sequential({40}, {Linear{512}})}) {
        Network<Cpu> own(graph, 3), row_major(graph, 3);
        row_major.use_row_major_parameters();
        const Tensor<float> input =
            testing::pattern_tensor<float>(1, testing::with_batch(7, graph.input_shape()));
        const Tensor<float>& output = own.forward(input);
        CHECK(testing::difference(output.values(), row_major.forward(input).values()) <
              testing::cpu_tolerance);
        for (Network<Cpu>* const net : {&own, &row_major})
            net->backward(testing::pattern_tensor<float>(2, output.shape()), InputGradient::compute);
        for (std::size_t i = 0; i < own.parameter_count(); ++i)
            CHECK(testing::difference(own.parameter_gradient(i), row_major.parameter_gradient(i)) <
                  testing::cpu_tolerance);
        CHECK(testing::difference(own.input_gradient().values(), row_major.input_gradient().values()) <
              testing::cpu_tolerance);
    }
}

TEST_CASE("convolutions in a row on oneDNN agree in their layouts") {
    check_against_reference({Conv2d{.out_channels = 17, .kernel_size = 3, .padding = 1}, ReLU{},
                             Conv2d{.out_channels = 3, .kernel_size = 3, .stride = 2, .padding = 1}, ReLU{},
                             Conv2d{.out_channels = 24, .kernel_size = 1}},
                            {3, 8, 8});
}

TEST_CASE("ReLU on oneDNN computes what the reference does, in every position") {
    SUBCASE("alone, over an input that is not its own") {
        check_against_reference({ReLU{}}, {3, 5, 4});
    }
    SUBCASE("twice") {
        check_against_reference({ReLU{}, ReLU{}}, {7});
    }
    SUBCASE("between layers") {
        check_against_reference({Linear{9}, ReLU{}, ReLU{}, Linear{4}, ReLU{}}, {7});
    }
    SUBCASE("after a Flatten of the input") {
        check_against_reference({Flatten{}, ReLU{}, Linear{3}}, {2, 3, 3});
    }
    SUBCASE("after a blocked convolution, last") {
        check_against_reference({Conv2d{.out_channels = 17, .kernel_size = 3}, ReLU{}}, {3, 6, 5});
    }
    SUBCASE("between a convolution and a Flatten") {
        check_against_reference(
            {Conv2d{.out_channels = 9, .kernel_size = 3}, Flatten{}, ReLU{}, Flatten{}, Linear{3}},
            {2, 6, 5});
    }
}

TEST_CASE("MaxPool2d on oneDNN computes what the reference does, in every position") {
    SUBCASE("alone") {
        check_against_reference({MaxPool2d{2}}, {3, 7, 6});
    }
    SUBCASE("with a large window") {
        check_against_reference({MaxPool2d{3}}, {2, 8, 6});
    }
    SUBCASE("after a padded convolution") {
        check_against_reference({Conv2d{.out_channels = 17, .kernel_size = 3, .padding = 1}, MaxPool2d{2}},
                                {3, 7, 6});
    }
    SUBCASE("with windows that overlap, after a convolution") {
        check_against_reference(
            {Conv2d{.out_channels = 17, .kernel_size = 3, .padding = 1}, MaxPool2d{3, 2, 1}}, {3, 9, 8});
    }
    SUBCASE("with windows that leave elements out, after a convolution") {
        check_against_reference({Conv2d{.out_channels = 9, .kernel_size = 3, .padding = 1}, MaxPool2d{2, 3}},
                                {3, 9, 8});
    }
    SUBCASE("before a Linear, without a convolution") {
        check_against_reference({MaxPool2d{2}, ReLU{}, Flatten{}, Linear{5}}, {3, 6, 6});
    }
    SUBCASE("before a ReLU") {
        check_against_reference(
            {Conv2d{.out_channels = 5, .kernel_size = 3}, MaxPool2d{2}, ReLU{}, Flatten{}, Linear{5}},
            {3, 8, 8});
    }
}

TEST_CASE("of equal values in a pooling window the first one gets the gradient on oneDNN too") {
    Network<Cpu> net(sequential({1, 2, 4}, {MaxPool2d{2}}), 1);
    Tensor<float> input(Shape{1, 1, 2, 4});
    input[1] = input[4] = 3;
    const Tensor<float> direction = testing::pattern_tensor<float>(2, {1, 1, 1, 2});
    net.forward(input);
    net.backward(direction, InputGradient::compute);
    CHECK(testing::difference(net.input_gradient().values(),
                              std::vector<float>{0, direction[0], direction[1], 0, 0, 0, 0, 0}) == 0);
}

TEST_CASE("max pools of blocked channels pick the first of equal elements, and NaN") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t block : {8U, 16U}) {
        CAPTURE(block);
        const cpu::BlockedMaxPool windows{2, block, {block, 2, 5}, {block, 1, 2}, MaxPool2d{2}};
        std::vector<float> input(2 * 10 * block, -5), output(2 * 2 * block), gradient(input.size(), nan);
        std::vector<std::uint8_t> positions(output.size());
        const auto at = [&](std::size_t plane, std::size_t pixel, std::size_t channel) {
            return (plane * 10 + pixel) * block + channel;
        };
        input[at(0, 1, 3)] = input[at(0, 5, 3)] = 7;  // in window 0
        input[at(1, 7, block - 1)] = nan;             // in window 1 of the other image
        windows.forward(input.data(), output.data(), positions.data());
        CHECK(output[3] == 7);
        CHECK(positions[3] == 1);
        CHECK(output[4] == -5);
        CHECK(positions[4] == 0);
        CHECK(std::isnan(output.back()));
        CHECK(positions.back() == 2);
        std::ranges::fill(output, 2);
        windows.backward(output.data(), positions.data(), gradient.data());
        CHECK(gradient[at(0, 0, 3)] == 0);
        CHECK(gradient[at(0, 1, 3)] == 2);
        CHECK(gradient[at(0, 5, 3)] == 0);
        CHECK(gradient[at(0, 0, 4)] == 2);
        CHECK(gradient[at(0, 4, 4)] == 0);  // in no window
        CHECK(gradient[at(1, 7, block - 1)] == 2);
    }
}

TEST_CASE("Flatten on oneDNN has PyTorch's order of features, in every position") {
    SUBCASE("alone") {
        check_against_reference({Flatten{}}, {3, 4, 5});
    }
    SUBCASE("last, after a blocked convolution") {
        check_against_reference({Conv2d{.out_channels = 17, .kernel_size = 3}, Flatten{}}, {3, 6, 5});
    }
    SUBCASE("between a convolution and a Linear") {
        check_against_reference({Conv2d{.out_channels = 17, .kernel_size = 3}, Flatten{}, Linear{10}},
                                {3, 6, 5});
    }
    SUBCASE("between a wide convolution and a Linear") {
        check_against_reference(
            {Conv2d{.out_channels = 32, .kernel_size = 3, .padding = 1}, ReLU{}, Flatten{}, Linear{16}},
            {16, 4, 4});
    }
    SUBCASE("of a flat input") {
        check_against_reference({Flatten{}, Flatten{}, Linear{3}, Flatten{}}, {8});
    }
}
