// Marks by address and by container, and the index of a name.
#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;
using Parameters = std::map<std::string, std::pair<std::vector<float>, std::vector<float>>>;

Parameters parameters_of(int rank) {
    const auto gradient = static_cast<float>(rank);
    return {{"out.weight", {{1, 2}, {gradient, 2 * gradient}}},
            {"hidden.weight", {{3}, {3 * gradient}}},
            {"embedding", {{4, 5, 6}, {gradient, gradient, gradient}}}};
}

}  // namespace

TEST_CASE("gradients are marked by their container, by their address, and by the index of their name") {
    test::on_ranks([](ProcessGroup& group) {
        const float mean = static_cast<float>(group.size() - 1) / 2;
        for (int step = 0; step < 2; ++step) {
            Parameters net = parameters_of(group.rank());
            dptk::DistributedDataParallel ddp(group, net,
                                              {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
            for (int again = 0; again < 3; ++again) {
                for (auto& [name, parameter] : net)
                    parameter.second = parameters_of(group.rank()).at(name).second;
                ddp.begin_step();
                ddp.mark_ready(net.at("out.weight").second);
                ddp.mark_ready(net.at("hidden.weight").second.data());
                ddp.mark_ready(ddp.index_of("embedding"));
                ddp.synchronize();
                CHECK(net.at("out.weight").second == std::vector{mean, 2 * mean});
                CHECK(net.at("hidden.weight").second == std::vector{3 * mean});
                CHECK(net.at("embedding").second == std::vector{mean, mean, mean});
            }
        }
    });
}

namespace {

/// A container whose functions are not const.
struct Block {
    std::vector<float> elements;

    float* data() { return elements.data(); }
    float* begin() { return elements.data(); }
    float* end() { return elements.data() + elements.size(); }
    std::size_t size() { return elements.size(); }
};

/// A part of a model.
struct Layer {
    Block weight{{1, 2}}, weight_gradient{{0, 0}};
    std::vector<float> bias{3}, bias_gradient{0};

    void for_each_parameter(auto& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }
};

}  // namespace

TEST_CASE("whatever can be a gradient can be marked: containers, pointers to them, pairs, and whole layers") {
    test::on_ranks([](ProcessGroup& group) {
        struct Model {
            Layer layer, second;
            std::unique_ptr<Block> value = std::make_unique<Block>(Block{{1}}),
                                   gradient = std::make_unique<Block>(Block{{0}});
            std::pair<std::vector<float>, std::vector<float>> pair{{1}, {0}};

            void for_each_parameter(dptk::ParameterSink& sink) {
                sink("layer", layer);
                sink("layers", std::tie(second));
                sink("pointer", *value, *gradient);
                sink("pair", pair);
            }
        } model;
        dptk::DistributedDataParallel ddp(group, model, {.ready = Ready::marked});
        CHECK(ddp.index_of("layer.weight") == 0);
        CHECK(ddp.index_of("layers[0].bias") == 3);
        CHECK(ddp.index_of("pair") == 5);
        const auto rank = static_cast<float>(group.rank());
        model.layer.weight_gradient.elements = {rank, rank};
        model.layer.bias_gradient[0] = model.second.bias_gradient[0] = model.pair.second[0] = rank;
        for (int step = 0; step < 2; ++step) {
            ddp.begin_step();
            ddp.mark_ready(model.pair);
            ddp.mark_ready(model.gradient);  // or model.gradient.get()
            ddp.mark_ready(model.second);
            ddp.mark_ready(std::as_const(model.layer.bias_gradient));
            ddp.mark_ready(model.layer.weight_gradient);
            ddp.synchronize();
        }
        const float mean = static_cast<float>(group.size() - 1) / 2;
        CHECK(model.layer.weight_gradient.elements == std::vector<float>{mean, mean});
        CHECK(model.second.bias_gradient[0] == mean);
        CHECK(model.pair.second[0] == mean);
        Block* const pointer = model.gradient.get();
        ddp.begin_step();
        for (const std::size_t i : {0U, 1U, 2U, 3U, 5U}) ddp.mark_ready(i);
        ddp.mark_ready(pointer);
        CHECK_NOTHROW(ddp.synchronize());
    });
}

TEST_CASE("an index is that of the sorted keys, and an unknown name is an error that lists the names") {
    test::on_ranks([](ProcessGroup& group) {
        Parameters net = parameters_of(0);
        const dptk::DistributedDataParallel ddp(group, net);
        CHECK(ddp.index_of("embedding") == 0);
        CHECK(ddp.index_of("hidden.weight") == 1);
        CHECK(ddp.index_of("out.weight") == 2);
        CHECK_THROWS_WITH_AS(static_cast<void>(ddp.index_of("out")),
                             doctest::Contains("the model has no parameter out: it has embedding, "
                                               "hidden.weight, out.weight"),
                             dptk::ArgumentError);
    });
}

TEST_CASE("an address that is not a gradient's is an error on all ranks, and the next step succeeds") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients = values, other = values;
        dptk::DistributedDataParallel ddp(group, values, gradients, {.ready = Ready::marked});
        const int wrong = group.size() - 1;
        std::string text;
        const auto step = [&](const std::vector<float>& first) {
            ddp.begin_step();
            ddp.mark_ready(gradients[1]);
            ddp.mark_ready(first);
            ddp.synchronize();
        };
        for (const float* address : {other[0].data(), gradients[0].data() + 1}) {
            CHECK(test::throws<dptk::ArgumentError>(
                text,
                [&] {
                    ddp.begin_step();
                    ddp.mark_ready(gradients[1]);
                    ddp.mark_ready(group.rank() == wrong ? address : gradients[0].data());
                    ddp.synchronize();
                },
                test::Agreed::yes));
            CHECK(test::contains(text, "with an address at which no gradient begins"));
            if (group.size() > 1) CHECK(test::contains(text, "rank " + std::to_string(wrong)));
        }
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                ddp.begin_step();
                for (int twice = 0; twice < 2; ++twice) ddp.mark_ready(gradients[1]);
                ddp.mark_ready(gradients[0]);
                ddp.synchronize();
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "gradient [1] was marked twice"));
        CHECK_NOTHROW(step(gradients[0]));
        gradients[0] = std::vector<float>{7, 8};  // at another address
        CHECK_NOTHROW(step(gradients[0]));
        CHECK(gradients[0][0] == 7);
    });
}

TEST_CASE("each mark of a tied gradient's address marks the next of its parameters") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value = {1, 2}, gradient(2), other = {3}, other_gradient(1);
        struct {
            std::vector<float>&value, &gradient, &other, &other_gradient;
            void for_each_parameter(dptk::ParameterSink& sink) {
                sink("first", value, gradient);
                sink("other", other, other_gradient);
                sink("again", value, gradient);
            }
        } model{value, gradient, other, other_gradient};
        dptk::DistributedDataParallel ddp(group, model, {.ready = Ready::marked});
        for (int step = 0; step < 2; ++step) {
            gradient.assign(2, static_cast<float>(group.rank()));
            ddp.begin_step();
            ddp.mark_ready(gradient);
            ddp.mark_ready(other_gradient);
            ddp.mark_ready(gradient);
            ddp.synchronize();
            CHECK(gradient[0] == static_cast<float>(group.size() - 1) / 2);
        }
    });
}

TEST_CASE("a mark by address under at_synchronize is an error") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                ddp.mark_ready(gradients[0]);
                ddp.synchronize();
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "options.ready is Ready::at_synchronize"));
    });
}
