// Marks by address and by container, and the index of a name.
#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <string>
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
