#include "dptk/nn/graph.hpp"

#include <doctest/doctest.h>
#include <dptk/core/detail/fnv1a.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>
#include <dptk/nn/custom_operation.hpp>
#include <dptk/nn/models.hpp>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "support/ranks.hpp"

using namespace dptk::nn;

namespace {

/// Returns the names and shapes of parameters and buffers, one on each line, sorted.
std::string entries_of(const Graph& graph, std::size_t& count, std::size_t& elements) {
    std::vector<std::string> lines;
    elements = 0;
    for (const ParameterSpec& parameter : graph.parameters()) {
        lines.push_back(parameter.name + ' ' + dptk::detail::shape_text(parameter.shape) + '\n');
        elements += dptk::element_count(parameter.shape);
    }
    for (const BufferSpec& buffer : graph.buffers())
        lines.push_back(buffer.name + ' ' + dptk::detail::shape_text(buffer.shape) + '\n');
    count = lines.size();
    std::sort(lines.begin(), lines.end());
    std::string all;
    for (const std::string& line : lines) all += line;
    return all;
}

}  // namespace

TEST_CASE("models have the parameters and buffers of torchvision's and timm's, with their names and shapes") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/nn/torch_models.txt");
    int models = 0;
    for (std::string name; recorded >> name; ++models) {
        CAPTURE(name);
        std::size_t count = 0, elements = 0, expected_count = 0, expected_elements = 0;
        std::uint64_t expected_hash = 0;
        recorded >> expected_count >> expected_hash >> expected_elements;
        const Graph graph = make_model(name, {});
        const std::string entries = entries_of(graph, count, elements);
        CHECK(count == expected_count);
        CHECK(elements == expected_elements);
        CHECK(dptk::detail::fnv1a(entries) == expected_hash);
        CHECK(graph.output_shape() == dptk::Shape{1000});
    }
    CHECK(models == 7);
}

TEST_CASE("a summary has the sums of parameters and FLOPs") {
    // torchvision's documentation has 1.81, 4.09 and 0.30 billions of multiplications and additions, counted
    // as one.
    CHECK(test::contains(resnet(18).summary(), "11689512       3628146688"));
    CHECK(test::contains(resnet(50).summary(), "25557032       8178368512"));
    CHECK(test::contains(mobilenet_v2().summary(), "3504872        601548544"));
    CHECK(test::contains(resnet(18).summary(), "layer2.0.downsample.0"));
}

TEST_CASE("a model takes other inputs and numbers of classes") {
    const Graph small = resnet(18, {.input = {1, 28, 28}, .classes = 10, .stem = Stem::small});
    CHECK(small.output_shape() == dptk::Shape{10});
    CHECK(small.parameters()[0].shape == dptk::Shape{64, 1, 3, 3});
    CHECK_THROWS_AS(static_cast<void>(resnet(20)), dptk::ArgumentError);
    Graph synchronized = mobilenet_v2({.input = {3, 32, 32}});
    synchronized.synchronize_batch_norms();
    for (const GraphNode& node : synchronized.nodes()) {
        if (const auto* const norm = std::get_if<BatchNorm2d>(&node.operation)) CHECK(norm->is_synchronized);
    }
}

TEST_CASE("shapes, also of rectangular windows, dilation and groups") {
    Graph g({6, 20, 31});
    const auto shape = [&](Value value) { return g.shape(value); };
    CHECK(shape(g.conv2d("a", g.input(),
                         {.out_channels = 4, .kernel_size = {3, 5}, .stride = {2, 1}, .padding = {1, 0}})) ==
          dptk::Shape{4, 10, 27});
    CHECK(shape(g.conv2d("b", g.input(),
                         {.out_channels = 12, .kernel_size = 3, .dilation = {3, 2}, .groups = 6})) ==
          dptk::Shape{12, 14, 27});
    CHECK(g.parameters()[2].shape == dptk::Shape{12, 1, 3, 3});
    CHECK(g.parameters()[2].fan_in == 9);
    CHECK(shape(g.max_pool(g.input(), {3, 2, 1})) == dptk::Shape{6, 10, 16});
    CHECK(shape(g.avg_pool(g.input(), {{20, 31}, 1})) == dptk::Shape{6, 1, 1});
    const Value gates = g.sigmoid(g.global_avg_pool(g.input()));
    CHECK(shape(g.multiply(g.input(), gates)) == dptk::Shape{6, 20, 31});
    CHECK(shape(g.linear("c", g.flatten(gates), {.out_features = 3, .bias = false})) == dptk::Shape{3});
    CHECK(g.parameters().size() == 5);
}

TEST_CASE("an operation that does not fit is an error with its name") {
    Graph g({3, 8, 8});
    std::string text;
    const auto fails = [&](const std::string& expected, auto&& add) {
        CHECK(test::throws<dptk::ArgumentError>(text, add));
        CAPTURE(text);
        CHECK(test::contains(text, expected));
    };
    fails("\"fc\": Linear: expected an input {features} (flatten() makes one), found [3, 8, 8]",
          [&] { g.linear("fc", g.input(), {.out_features = 2}); });
    fails("\"c\": Conv2d: expected groups that divide the 3 input and 4 output channels, found 2",
          [&] { g.conv2d("c", g.input(), {.out_channels = 4, .groups = 2}); });
    fails("Conv2d: expected an input that is, with its padding, not smaller than the window of 9, found 8",
          [&] { g.conv2d("c", g.input(), {.out_channels = 4, .kernel_size = 9}); });
    fails("stride and dilation of 1 to 1048576, found 0",
          [&] { g.conv2d("c", g.input(), {.out_channels = 4, .stride = 0}); });
    fails("Add: expected two inputs of the shape [3, 8, 8], found [3, 4, 4]",
          [&] { g.add(g.input(), g.max_pool(g.input(), {2})); });
    fails(
        "Multiply: expected a second input of the shape [3, 4, 4], in which sizes may be 1, found [3, 8, 8]",
        [&] { g.multiply(g.max_pool(g.input(), {2}), g.input()); });
    fails("MaxPool2d: expected a padding of at most half a window, found 2 x 2", [&] {
        g.max_pool(g.input(), {3, 2, 2});
    });
    fails("Dropout: expected a p in [0, 1), found 1", [&] { g.dropout(g.input(), 1); });
    fails("expected inputs that are values of this graph", [&] { g.relu({99}); });
    fails("expected a name of its own for BatchNorm2d", [&] { g.batch_norm("", g.input()); });
    fails(": expected inputs, except for the first operation", [&] { g.add_operation(Input{{2}}, {}); });
    fails("expected an operation, found null", [&] { g.add_operation(Custom{}, {g.input()}); });
    fails("Conv2d: expected a padding of at most 1048576, found 18446744073709551615",
          [&] { g.conv2d("c", g.input(), {.out_channels = 1, .padding = static_cast<std::size_t>(-1)}); });
    fails("MaxPool2d: expected a padding of at most 1048576, found 9223372036854775808",
          [&] { g.max_pool(g.input(), {.padding = std::size_t{1} << 63}); });
    fails("Conv2d: expected a kernel_size, stride and dilation of 1 to 1048576, found 9223372036854775808",
          [&] { g.conv2d("c", g.input(), {.out_channels = 1, .dilation = std::size_t{1} << 63}); });
    fails("expected a value of this graph, found operation 99", [&] { static_cast<void>(g.shape({99})); });
    g.batch_norm("bn", g.input());
    fails("\"bn\": expected a name of its own for BatchNorm2d", [&] { g.batch_norm("bn", g.input()); });
    fails("Input: expected a shape with elements, found [3, 0]", [] { Graph({3, 0}); });
}

TEST_CASE("a summary has a row for each operation, also with long names") {
    Graph g({2});
    g.linear(std::string(300, 'n'), g.input(), {1});
    const std::string table = g.summary();
    CHECK(std::count(table.begin(), table.end(), '\n') == 4);
}

namespace {

/// Operations with mistakes.
struct Uniform {
    static constexpr std::string_view name = "Uniform";
    [[nodiscard]] dptk::Shape output_shape(InputShapes inputs) const { return inputs[0]; }
    [[nodiscard]] std::vector<ParameterSpec> parameters(InputShapes) const {
        return {{.name = "weight", .shape = {2}, .initial = Initial::uniform}};
    }
    void forward(const auto&) const {}
    void backward_parameters(const auto&) const {}
    void backward_inputs(const auto&) const {}
};

struct Empty : Uniform {
    [[nodiscard]] static dptk::Shape output_shape(InputShapes) { return {}; }
};

}  // namespace

TEST_CASE("mistakes in a program's own operations are errors") {
    Graph g({3});
    CHECK_THROWS_WITH_AS(g.add_operation(custom(Uniform{}), {g.input()}, "a"),
                         "\"a\": Uniform: expected a fan_in of at least 1 for the parameter weight, found 0",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(g.add_operation(custom(Empty{}), {g.input()}, "a"),
                         "\"a\": Uniform: expected an output shape with elements, found []",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(g.add_operation(custom(ReLU{}), {g.input(), g.input()}),
                         "operation 1: ReLU: expected 1 input, found 2", dptk::ArgumentError);
}
