#include <doctest/doctest.h>
#include <dptk/ddp/parameter_source.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Vectors = std::vector<std::vector<float>>;

/// "name[shape]dtype" of each parameter.
std::vector<std::string> described(const dptk::ParameterSource& source) {
    std::vector<std::string> out;
    for (const dptk::ParameterRef& parameter : source.collect()) {
        out.push_back(parameter.name + " " + dptk::detail::shape_text(parameter.shape) + " " +
                      std::string(dptk::dtype_name(parameter.dtype)));
    }
    return out;
}

using Lines = std::vector<std::string>;

struct Matrix {
    std::size_t rows, columns;
    std::vector<double> elements = std::vector<double>(rows * columns);

    [[nodiscard]] std::array<std::size_t, 2> shape() const { return {rows, columns}; }
    [[nodiscard]] double* data() { return elements.data(); }
    [[nodiscard]] double* begin() { return elements.data(); }
    [[nodiscard]] double* end() { return elements.data() + elements.size(); }
    [[nodiscard]] std::size_t size() const { return elements.size(); }
};

struct ModelWithMember {
    Matrix weight{2, 3}, weight_gradient{2, 3};
    std::vector<double> bias = std::vector<double>(2), bias_gradient = std::vector<double>(2);

    template <class Sink>
    void for_each_parameter(Sink& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }
};

namespace elsewhere {

struct Model {
    std::vector<float> value = {1, 2}, gradient = {3, 4};
};

void for_each_parameter(Model& model, dptk::ParameterSink& sink) {
    sink("only", model.value, model.gradient);
}

}  // namespace elsewhere

}  // namespace

TEST_CASE("a flat span is one parameter") {
    std::vector<float> value(6), gradient(6);
    const dptk::ParameterSource source{std::span(value), std::span(gradient)};
    CHECK(described(source) == Lines{"[0] [6] f32"});
    CHECK(source.collect()[0].value == value.data());
    CHECK(source.collect()[0].gradient == gradient.data());
}

TEST_CASE("in a range of ranges, each inner range is a parameter, for any kind of range") {
    Vectors values = {{1, 2}, {3}}, gradients = {{1, 2}, {3}};
    CHECK(described({values, gradients}) == Lines{"[0] [2] f32", "[1] [1] f32"});
    std::list<std::vector<double>> list_values = {{1}, {2}}, list_gradients = {{1}, {2}};
    CHECK(described({list_values, list_gradients}) == Lines{"[0] [1] f64", "[1] [1] f64"});
    Vectors* nested[] = {&values};
    Vectors* nested_gradients[] = {&gradients};
    CHECK(described({nested, nested_gradients}) == Lines{"[0][0] [2] f32", "[0][1] [1] f32"});
}

TEST_CASE("pointers of all kinds lead to parameters, and a null one is an error that names it") {
    std::vector<std::unique_ptr<std::vector<float>>> values;
    values.push_back(std::make_unique<std::vector<float>>(4));
    std::vector<std::shared_ptr<std::vector<float>>> gradients = {std::make_shared<std::vector<float>>(4)};
    CHECK(described({values, gradients}) == Lines{"[0] [4] f32"});
    values.push_back(nullptr);
    const dptk::ParameterSource broken(values, gradients);
    CHECK_THROWS_WITH_AS(static_cast<void>(broken.collect()), "parameter [1] is a null pointer",
                         dptk::ArgumentError);
}

TEST_CASE("pairs are a value and its gradient") {
    std::vector<std::pair<std::vector<float>, std::vector<float>>> pairs = {{{1, 2}, {3, 4}}, {{5}, {6}}};
    const dptk::ParameterSource source(pairs);
    CHECK(described(source) == Lines{"[0] [2] f32", "[1] [1] f32"});
    CHECK(source.collect()[1].gradient == pairs[1].second.data());
}

TEST_CASE("tuples of anything nest, by reference or by value") {
    std::vector<float> weight(2), weight_gradient(2);
    double scale[1] = {}, scale_gradient[1] = {};
    CHECK(described({std::tie(weight, scale), std::tie(weight_gradient, scale_gradient)}) ==
          Lines{"[0] [2] f32", "[1] [1] f64"});
    std::tuple<Vectors, std::vector<double>> owned = {{{1, 2}, {3}}, {4}}, owned_gradients = owned;
    CHECK(described({owned, owned_gradients}) == Lines{"[0][0] [2] f32", "[0][1] [1] f32", "[1] [1] f64"});
}

TEST_CASE("maps are visited in the order of their keys, whatever their own") {
    std::map<int, std::pair<std::vector<float>, std::vector<float>>> ordered = {{7, {{1}, {1}}},
                                                                                {-1, {{2}, {2}}}};
    CHECK(described(dptk::ParameterSource(ordered)) == Lines{"[-1] [1] f32", "[7] [1] f32"});
    std::unordered_map<std::string, std::vector<float>> values, gradients;
    for (const char* key : {"fc.weight", "conv", "fc.bias", "z", "a"}) values[key] = gradients[key] = {1};
    CHECK(described({values, gradients}) ==
          Lines{"a [1] f32", "conv [1] f32", "fc.bias [1] f32", "fc.weight [1] f32", "z [1] f32"});
}

TEST_CASE(
    "a model lists its parameters by a member or by a function found by ADL; shape() gives dimensions") {
    ModelWithMember model;
    CHECK(described(dptk::ParameterSource(model)) == Lines{"weight [2, 3] f64", "bias [2] f64"});
    std::vector<ModelWithMember> several(2);
    CHECK(described(dptk::ParameterSource(several)).back() == "[1].bias [2] f64");
    elsewhere::Model other;
    CHECK(described(dptk::ParameterSource(other)) == Lines{"only [2] f32"});
}

TEST_CASE("parts of a model have names, with which the names of their parameters begin") {
    struct {
        ModelWithMember encoder;
        std::vector<elsewhere::Model> blocks = std::vector<elsewhere::Model>(2);
        std::unique_ptr<elsewhere::Model> head = std::make_unique<elsewhere::Model>();
        std::pair<std::vector<float>, std::vector<float>> scale = {{1}, {1}};

        void for_each_parameter(dptk::ParameterSink& sink) {
            sink("encoder", encoder);
            sink("blocks", blocks);
            sink("head", head);
            sink("scale", scale);
        }
    } model;
    CHECK(described(dptk::ParameterSource(model)) ==
          Lines{"encoder.weight [2, 3] f64", "encoder.bias [2] f64", "blocks[0].only [2] f32",
                "blocks[1].only [2] f32", "head.only [2] f32", "scale [1] f32"});
}

TEST_CASE("addresses are re-read each time") {
    Vectors values = {{1}}, gradients = {{1}};
    const dptk::ParameterSource source(values, gradients);
    values[0] = std::vector<float>{5};
    gradients = Vectors{{6}};
    CHECK(source.collect()[0].value == values[0].data());
    CHECK(source.collect()[0].gradient == gradients[0].data());
}

TEST_CASE("addresses are read again, unless something else has changed") {
    Vectors values = {{1, 2}, {3}}, gradients = values;
    dptk::ParameterSource source(values, gradients);
    std::vector<dptk::ParameterRef> known = source.collect();
    std::vector<dptk::detail::ParameterAddresses> now;
    const auto is_read_again = [&] { return source.read_again(known, now); };

    values[1] = std::vector<float>{5};
    gradients = Vectors{{6, 7}, {8}};
    REQUIRE(is_read_again());
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(now[i].value == values[i].data());
        CHECK(now[i].gradient == gradients[i].data());
    }
    gradients[1].clear();
    CHECK(!is_read_again());
    gradients[1] = {8};
    CHECK(is_read_again());
    values.push_back({9});
    CHECK(!is_read_again());
    gradients.push_back({9});
    CHECK(!is_read_again());
    values.resize(1);
    gradients.resize(1);
    CHECK(!is_read_again());
}

TEST_CASE("addresses of all kinds of parameters are read again") {
    ModelWithMember model;
    const auto is_read_again = [&](dptk::ParameterSource source) {
        std::vector<dptk::ParameterRef> known = source.collect();
        std::vector<dptk::detail::ParameterAddresses> now;
        if (!source.read_again(known, now)) return false;
        const std::vector<dptk::ParameterRef> all = source.collect();
        for (std::size_t i = 0; i < all.size(); ++i)
            if (now[i].value != all[i].value || now[i].gradient != all[i].gradient) return false;
        return true;
    };
    CHECK(is_read_again(dptk::ParameterSource(model)));
    std::map<std::string, std::pair<std::vector<float>, std::vector<double>>> pairs = {{"b", {{1}, {2}}},
                                                                                       {"a", {{3}, {4}}}};
    CHECK(is_read_again(dptk::ParameterSource(pairs)));
    std::unordered_map<int, std::vector<float>> some = {{3, {1}}, {1, {2, 3}}}, others = some;
    CHECK(is_read_again({some, others}));
    Vectors empty = {{}, {1}}, empty_gradients = empty;
    CHECK(is_read_again({empty, empty_gradients}));
}

TEST_CASE("a shape that has changed, a null pointer and a missing gradient are noticed when read again") {
    std::vector<float> value(6), gradient(6);
    dptk::ParameterRef parameter{
        .name = "w", .shape = {2, 3}, .count = 6, .value = value.data(), .gradient = gradient.data()};
    bool throws = false;
    auto visit = [&](dptk::ParameterSink& sink) {
        sink(parameter);
        if (throws) throw std::runtime_error("in the program's own code");
    };
    struct Model {
        std::function<void(dptk::ParameterSink&)> visit;
        void for_each_parameter(dptk::ParameterSink& sink) const { visit(sink); }
    } model{visit};
    dptk::ParameterSource source(model);
    const std::vector<dptk::ParameterRef> first = source.collect();
    const auto is_read_again = [&] {
        std::vector<dptk::ParameterRef> known = first;
        std::vector<dptk::detail::ParameterAddresses> now;
        return source.read_again(known, now);
    };
    CHECK(is_read_again());
    const auto check_noticed = [&](auto&& change) {
        const dptk::ParameterRef before = parameter;
        change(parameter);
        CHECK(!is_read_again());
        parameter = before;
        CHECK(is_read_again());
    };
    check_noticed([](dptk::ParameterRef& changed) { changed.shape = {3, 2}; });
    check_noticed([](dptk::ParameterRef& changed) { changed.layout = dptk::column_major; });
    check_noticed([](dptk::ParameterRef& changed) { changed.dtype = dptk::DType::f64; });
    check_noticed([](dptk::ParameterRef& changed) { changed.gradient_dtype = dptk::DType::f64; });
    check_noticed([](dptk::ParameterRef& changed) { changed.value = nullptr; });
    check_noticed([](dptk::ParameterRef& changed) { changed.gradient = nullptr; });
    check_noticed([](dptk::ParameterRef& changed) {
        changed.lazy_gradient = [](dptk::IfMissing) -> void* { return nullptr; };
    });
    throws = true;
    CHECK(!is_read_again());
}

TEST_CASE("parameters that a model changes after it has added them are collected again in each step") {
    struct Model {
        std::vector<float> value = std::vector<float>(2), gradient = value;
        void for_each_parameter(dptk::ParameterSink& sink) {
            sink(value, gradient);
            sink.parameters().back().layout = 7;
        }
    } model;
    dptk::ParameterSource source(model);
    std::vector<dptk::ParameterRef> known = source.collect();
    CHECK(known[0].layout == 7);
    std::vector<dptk::detail::ParameterAddresses> now;
    CHECK(!source.read_again(known, now));
    CHECK(!source.read_again(known, now));
    CHECK(source.collect()[0].layout == 7);
}

TEST_CASE("values and gradients that do not match are errors that name the parameter") {
    Vectors values = {{1, 2}, {3}}, fewer = {{1, 2}}, shorter = {{1, 2}, {}};
    std::vector<std::vector<double>> doubles = {{1, 2}, {3}};
    const auto error = [](const dptk::ParameterSource& source) -> std::string {
        try {
            static_cast<void>(source.collect());
        } catch (const dptk::ArgumentError& failure) {
            return failure.what();
        }
        return "none";
    };
    CHECK(error({values, fewer}) == "there are 2 parameters, but 1 gradients");
    CHECK(error({values, shorter}) == "parameter [1] has 1 elements, but its gradient has 0");
    CHECK(error({values, doubles}) == "none");
    CHECK(dptk::ParameterSource(values, doubles).collect()[0].gradient_buffer().dtype == dptk::DType::f64);
    CHECK(error(dptk::ParameterSource(values)) == "parameter [0] has no gradient");
    std::map<std::string, std::vector<float>> named = {{"W", {1}}, {"b", {2}}},
                                              others = {{"b_grad", {1}}, {"grad_W", {2}}};
    CHECK(error({named, others}) ==
          "the values W, b and the gradients b_grad, grad_W have different names: W would get the gradient "
          "b_grad");
    std::map<int, std::vector<float>> first = {{1, {1}}, {2, {2}}}, second = {{2, {1}}, {3, {2}}};
    CHECK(error({first, second}).ends_with("[1] would get the gradient [2]"));
    Vectors in_order = {{1}, {2}};
    CHECK(error({first, in_order}) == "none");
    CHECK(error({named, in_order}) == "none");
    std::vector<std::pair<std::vector<float>, std::vector<float>>> pairs = {{{1, 2}, {3}}};
    CHECK(error(dptk::ParameterSource(pairs)) == "parameter [0] has 2 elements, but its gradient has 1");
}
