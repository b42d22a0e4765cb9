#include "dptk/weights/load_weights.hpp"

#include <doctest/doctest.h>
#include <dptk/train.hpp>
#include <dptk/weights/safetensors_writer.hpp>

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
