#include "dptk/weights/load_weights.hpp"
#include "dptk/weights/make_model_for.hpp"

#include <doctest/doctest.h>
#include <dptk/train.hpp>
#include <dptk/weights/safetensors_writer.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

template <class Backend>
dptk::nn::Network<Backend> net_of(std::size_t classes, std::uint64_t seed) {
    return {dptk::nn::convnet({.input = {1, 8, 8}, .classes = classes}), seed};
}

template <class A, class B>
bool same_values(A& a, B& b) {
    for (std::size_t i = 0; i < a.parameter_count(); ++i) {
        if (a.parameter_values(i) != b.parameter_values(i)) return false;
    }
    return true;
}

using Reference = dptk::nn::Reference<float>;
#ifdef DPTK_WITH_ONEDNN
using Other = dptk::nn::Cpu;
#else
using Other = Reference;
#endif

}  // namespace

TEST_CASE("a network gets the values that another one has saved, on another backend") {
    const TemporaryFolder folder;
    auto saved = net_of<Other>(10, 1);
    auto loaded = net_of<Reference>(10, 2);
    CHECK_FALSE(same_values(saved, loaded));
    dptk::save_weights(saved, folder / "net.safetensors");
    const dptk::SafetensorsFile file(folder / "net.safetensors");
    CHECK(file.find("0.weight")->shape == dptk::Shape{64, 1, 3, 3});
    const dptk::LoadedWeights report = dptk::load_weights(loaded, file);
    CHECK(report.is_complete());
    CHECK(report.loaded.size() == loaded.parameter_count());
    CHECK(same_values(saved, loaded));
}

TEST_CASE("what does not match is an error that names it, or is left out") {
    const TemporaryFolder folder;
    auto saved = net_of<Reference>(10, 1);
    dptk::save_weights(saved, folder / "net.safetensors");
    const dptk::SafetensorsFile file(folder / "net.safetensors");
    auto smaller = net_of<Reference>(5, 2);
    const auto before = smaller.parameter_values(0);
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::load_weights(smaller, file); }));
    CAPTURE(text);
    CHECK(test::contains(text,
                         "of another shape in the file: 9.weight ([10, 512] instead of [5, 512]), 9.bias"));
    CHECK(smaller.parameter_values(0) == before);
    const dptk::LoadedWeights report = dptk::load_weights(smaller, file, dptk::Match::partial);
    CHECK(report.other_shape.size() == 2);
    CHECK(report.unused.empty());
    CHECK(smaller.parameter_values(0) == saved.parameter_values(0));
    dptk::nn::Network<Reference> mlp(dptk::nn::mlp({.input = {1, 8, 8}, .classes = 10}), 1);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::load_weights(mlp, file); }));
    CHECK(test::contains(text, "not in the file: 1.weight, 1.bias"));
    CHECK(test::contains(text, "unused: "));
}

TEST_CASE("tensors whose elements cannot be converted are named before any value is set") {
    const TemporaryFolder folder;
    const dptk::nn::Graph graph = dptk::nn::make_model("convnet_mnist", {.input = {1, 8, 8}, .classes = 10});
    dptk::nn::Network<Reference> saved(graph, 1), loaded(graph, 2);
    dptk::save_weights(saved, folder / "net.safetensors");
    // As a state_dict of PyTorch whose tensors were all converted to float.
    const dptk::SafetensorsFile file(folder / "net.safetensors");
    std::vector<std::vector<float>> values;
    std::vector<dptk::SafetensorsTensor> tensors;
    std::string counter;
    for (const dptk::SafetensorsEntry& entry : file.entries()) {
        values.emplace_back(entry.count, 0.5F);
        tensors.push_back({entry.name, entry.shape, {values.back().data(), entry.count, dptk::DType::f32}});
        if (entry.dtype == dptk::DType::i64 && counter.empty()) counter = entry.name;
    }
    REQUIRE(!counter.empty());
    write_safetensors(folder / "floats.safetensors", tensors);
    const dptk::SafetensorsFile floats(folder / "floats.safetensors");
    const std::vector<float> before = loaded.parameter_values(0);
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::load_weights(loaded, floats); }));
    CAPTURE(text);
    CHECK(test::contains(text, "floats.safetensors: "));
    CHECK(test::contains(text, "of another type in the file: " + counter + " (f32 instead of i64)"));
    loaded.for_each_buffer([&](const dptk::nn::NamedBuffer& buffer) {
        if (buffer.data.dtype == dptk::DType::f32)
            CHECK(static_cast<const float*>(buffer.data.data)[0] != 0.5F);
    });
    CHECK(loaded.parameter_values(0) == before);
    const dptk::LoadedWeights report = dptk::load_weights(loaded, floats, dptk::Match::partial);
    CHECK(report.other_type.front() == counter + " (f32 instead of i64)");
    CHECK(loaded.parameter_values(0) == std::vector<float>(before.size(), 0.5F));
}

TEST_CASE("weights of which nothing fits are an error, which names a prefix without which they would fit") {
    const TemporaryFolder folder;
    auto saved = net_of<Reference>(10, 1), loaded = net_of<Reference>(10, 2);
    const auto before = loaded.parameter_values(0);
    const auto error_of = [&](const std::string& prefix, dptk::Match match, const char* suffix = "") {
        std::vector<std::vector<float>> values;
        std::vector<dptk::SafetensorsTensor> tensors;
        for (std::size_t i = 0; i < saved.parameter_count(); ++i) values.push_back(saved.parameter_values(i));
        saved.for_each_parameter([&](const dptk::ParameterRef& parameter) {
            std::vector<float>& own = values[tensors.size()];
            tensors.push_back({prefix + parameter.name + suffix,
                               parameter.shape,
                               {own.data(), own.size(), dptk::DType::f32}});
        });
        write_safetensors(folder / "net.safetensors", tensors);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] {
            dptk::load_weights(loaded, dptk::SafetensorsFile(folder / "net.safetensors"), match);
        }));
        CHECK(loaded.parameter_values(0) == before);
        return text;
    };
    for (const dptk::Match match : {dptk::Match::exact, dptk::Match::partial}) {
        CHECK(test::contains(error_of("model.", match),
                             "without the prefix \"model.\" of the file's names, all tensors would fit"));
        CHECK(test::contains(error_of("module.backbone.", match), "without the prefix \"backbone.\" of "));
        CHECK(!test::contains(error_of("model.", match, ".v"), "without the prefix"));
    }
    CHECK(test::contains(error_of("", dptk::Match::partial, ".v"),
                         "net.safetensors: no tensor fits the network: loaded 0 tensors; not in the file: "));
}

TEST_CASE("a tensor of a type that dptk lacks is unused, and an error where a parameter wants it") {
    const TemporaryFolder folder;
    auto saved = net_of<Reference>(10, 1), loaded = net_of<Reference>(10, 2);
    dptk::save_weights(saved, folder / "net.safetensors", {});
    // Adds a tensor, and gives another name to the type of one.
    const auto changed = [&](const std::string& name, bool is_known) {
        std::ifstream in(folder / "net.safetensors", std::ios::binary);
        const std::string file(std::istreambuf_iterator<char>(in), {});
        std::uint64_t length = 0;
        std::memcpy(&length, file.data(), sizeof length);
        std::string header = file.substr(8, length);
        const std::size_t end = file.size() - 8 - length;
        header.replace(header.rfind('}'), 1,
                       R"(,"scale":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[)" + std::to_string(end) +
                           ',' + std::to_string(end + 2) + "]}}");
        if (!is_known) {
            const std::size_t type = header.find("F32", header.find('"' + name + '"'));
            header.replace(type, 3, "F6_E2M3");
        }
        length = header.size();
        std::string all(8, ' ');
        std::memcpy(all.data(), &length, sizeof length);
        all += header + file.substr(file.size() - end) + "ab";
        return dptk::SafetensorsFile(folder.write("changed", all));
    };
    const dptk::LoadedWeights report =
        dptk::load_weights(loaded, changed("0.bias", true), dptk::Match::partial);
    CHECK(report.describe() == "loaded 8 tensors; unused: scale");
    CHECK(same_values(saved, loaded));
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text,
                                            [&] { dptk::load_weights(loaded, changed("0.bias", false)); }));
    CAPTURE(text);
    CHECK(
        test::contains(text, "of another type in the file: 0.bias (F6_E2M3 instead of f32); unused: scale"));
}

TEST_CASE("the prefix of PyTorch's DistributedDataParallel is taken off") {
    const TemporaryFolder folder;
    auto saved = net_of<Reference>(10, 1);
    std::vector<dptk::SafetensorsTensor> tensors;
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < saved.parameter_count(); ++i) values.push_back(saved.parameter_values(i));
    saved.for_each_parameter([&](const dptk::ParameterRef& parameter) {
        std::vector<float>& own = values[tensors.size()];
        tensors.push_back(
            {"module." + parameter.name, parameter.shape, {own.data(), own.size(), dptk::DType::f32}});
    });
    write_safetensors(folder / "ddp.safetensors", tensors);
    auto loaded = net_of<Reference>(10, 2);
    CHECK(dptk::load_weights(loaded, dptk::SafetensorsFile(folder / "ddp.safetensors")).is_complete());
    CHECK(same_values(saved, loaded));
    tensors.push_back(tensors[0]);
    tensors.back().name = "0.weight";
    write_safetensors(folder / "clash.safetensors", tensors);
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(
        text, [&] { dptk::load_weights(loaded, dptk::SafetensorsFile(folder / "clash.safetensors")); }));
    CHECK(test::contains(text, "the names \"0.weight\" and \"module.0.weight\" clash"));
}

TEST_CASE("a model for weights has the stem of their first convolution") {
    const TemporaryFolder folder;
    const auto write = [&](const dptk::Shape& shape) {
        std::vector<float> values(dptk::element_count(shape));
        const std::vector<dptk::SafetensorsTensor> tensors{
            {"conv1.weight", shape, {values.data(), values.size(), dptk::DType::f32}}};
        write_safetensors(folder / "x.safetensors", tensors);
        return dptk::SafetensorsFile(folder / "x.safetensors");
    };
    const auto first = [](const dptk::nn::Graph& graph) { return graph.parameters().front().shape; };
    const dptk::Shape large{64, 3, 7, 7}, small{64, 3, 3, 3};
    for (const dptk::nn::Stem stem : {dptk::nn::Stem::large, dptk::nn::Stem::small}) {
        const dptk::nn::ModelOptions options{.input = {3, 64, 64}, .classes = 3, .stem = stem};
        CHECK(first(dptk::make_model_for(write(large), "resnet18", options)) == large);
        CHECK(first(dptk::make_model_for(write(small), "resnet18", options)) == small);
    }
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] {
        static_cast<void>(dptk::make_model_for(write({64, 3, 5, 5}), "resnet18", {.classes = 3}));
    }));
    CHECK(test::contains(text,
                         "x.safetensors: conv1.weight: expected [64, 3, 7, 7], as the first layer of "
                         "resnet18, found [64, 3, 5, 5]"));
}
