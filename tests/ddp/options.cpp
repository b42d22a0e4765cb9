// The options of DistributedDataParallel, one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::Ready;
using Vectors = std::vector<std::vector<float>>;

float mean_of_ranks(const dptk::ProcessGroup& group) {
    return static_cast<float>(group.size() - 1) / 2;
}

}  // namespace

TEST_CASE("init_sync: whether all ranks get rank 0's values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const bool sync : {true, false}) {
            Vectors values = {{static_cast<float>(group.rank())}}, gradients = values;
            const DistributedDataParallel ddp(group, values, gradients, {.init_sync = sync});
            CHECK(values[0][0] == static_cast<float>(sync ? 0 : group.rank()));
        }
    });
}

TEST_CASE("parameters_to_ignore: neither values nor gradients are sent, and marks have no effect") {
    struct Model {
        std::vector<float> a{1}, b{1}, da{1}, db{1};
        void for_each_parameter(dptk::ParameterSink& sink) {
            sink("a", a, da);
            sink("b", b, db);
        }
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto rank = static_cast<float>(group.rank());
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            Model model{{rank}, {rank}, {rank}, {rank}};
            DistributedDataParallel ddp(group, model, {.ready = ready, .parameters_to_ignore = {"a"}});
            CHECK(model.a[0] == rank);
            CHECK(model.b[0] == 0);
            if (ready == Ready::marked) ddp.mark_ready(1);
            ddp.synchronize();
            CHECK(model.da[0] == rank);
            CHECK(model.db[0] == doctest::Approx(mean_of_ranks(group)));
            CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory<float>(0)), dptk::ArgumentError);
        }
        Model model;
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { const DistributedDataParallel ddp(group, model, {.parameters_to_ignore = {"c"}}); },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameters_to_ignore: the model has no parameter c"));
        if (group.size() == 1) return;
        CHECK(test::throws<dptk::MismatchError>(
            text,
            [&] {
                std::vector<std::string> names;
                if (group.rank() == 1) names.emplace_back("b");
                const DistributedDataParallel ddp(group, model, {.parameters_to_ignore = names});
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 1 has ignored parameter b"));
    });
}

TEST_CASE("broadcast_buffers: all ranks get rank 0's buffers at the beginning of a step") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const bool broadcast : {true, false}) {
            for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
                Vectors values = {{1}}, gradients = {{1}};
                std::vector<double> mean(3, group.rank());
                std::vector<int> batches(1, group.rank());
                DistributedDataParallel ddp(group, values, gradients,
                                            {.ready = ready,
                                             .buffers = dptk::BufferSource(std::tie(mean, batches)),
                                             .broadcast_buffers = broadcast});
                for (int step = 1; step < 4; ++step) {
                    std::ranges::fill(mean, 10 * step + group.rank());
                    batches[0] = 10 * step + group.rank();
                    ddp.begin_step(1);
                    const int expected = 10 * step + (broadcast ? 0 : group.rank());
                    CHECK(mean[2] == expected);
                    CHECK(batches[0] == expected);
                    if (ready == Ready::marked) ddp.mark_ready(0);
                    ddp.synchronize();
                }
                std::ranges::fill(mean, group.rank());
                if (ready == Ready::marked) ddp.mark_ready(0);
                ddp.synchronize();  // begins the step as well
                CHECK(mean[0] == (broadcast ? 0 : group.rank()));
            }
        }
    });
}

TEST_CASE("buffers that change their size are an error of the step on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}}, gradients = {{1}};
        Vectors buffers = {{1}, {2, 3}};
        DistributedDataParallel ddp(group, values, gradients, {.buffers = dptk::BufferSource(buffers)});
        if (group.rank() == group.size() - 1) buffers[1].resize(5);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(1); }, test::Agreed::yes));
        CHECK(test::contains(text, "the model's buffers have changed since construction"));
        buffers[1].resize(2);
        ddp.synchronize(1);
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

TEST_CASE(
    "find_unused_parameters: gradients used on some ranks are averaged, those used on none are unchanged") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const double cap : {test::one_byte, 25.0}) {
            for (const bool is_static : {true, false}) {
                Vectors values(4, std::vector<float>(1)), gradients(4, std::vector<float>(1));
                DistributedDataParallel ddp(group, values, gradients,
                                            {.bucket_cap_mb = cap,
                                             .ready = Ready::marked,
                                             .find_unused_parameters = true,
                                             .static_graph = is_static});
                for (int step = 0; step < 3; ++step) {
                    for (auto& gradient : gradients) gradient[0] = 8;
                    ddp.begin_step();
                    ddp.mark_ready(3);
                    if (group.rank() == 0) ddp.mark_ready(1);
                    // No rank uses parameter 2, and one rank marks it as unused.
                    if (group.rank() == group.size() - 1) ddp.mark_unused(2);
                    ddp.synchronize();
                    CHECK(gradients[3][0] == 8);
                    CHECK(gradients[1][0] == doctest::Approx(8.0 / group.size()));
                    CHECK(gradients[2][0] == 8);
                    CHECK(gradients[0][0] == 8);
                }
            }
        }
        Vectors values = {{1}}, gradients = {{1}};
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                const DistributedDataParallel ddp(group, values, gradients, {.find_unused_parameters = true});
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "find_unused_parameters needs Ready::marked"));
    });
}

TEST_CASE("gradient_as_bucket_view: a gradient that lies elsewhere is an error of the step on all ranks") {
    struct Model {
        std::vector<double> value = std::vector<double>(10), elsewhere = std::vector<double>(10);
        std::span<double> gradient = elsewhere;
        void for_each_parameter(dptk::ParameterSink& sink) { sink("p", value, gradient); }
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        Model model;
        DistributedDataParallel ddp(group, model, {.gradient_as_bucket_view = true});
        model.gradient = ddp.gradient_memory<double>(0);
        std::ranges::fill(model.gradient, group.rank());
        ddp.synchronize();
        CHECK(model.gradient[9] == doctest::Approx(mean_of_ranks(group)));
        const bool odd = group.rank() == group.size() - 1;
        if (odd) model.gradient = model.elsewhere;
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "gradient p is not at the address that gradient_memory(0) returns"));
    });
}

TEST_CASE("buckets are rebuilt in the order in which rank 0's gradients become ready") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const std::vector<std::size_t> sizes = {100, 1, 50, 200};
        Vectors values, gradients;
        for (const std::size_t size : sizes) {
            values.emplace_back(size);
            gradients.emplace_back(size, static_cast<float>(group.rank()));
        }
        DistributedDataParallel ddp(group, values, gradients,
                                    {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        using Bytes = std::vector<std::size_t>;
        CHECK(ddp.statistics().bucket_bytes == Bytes{800, 200, 4, 400});
        const auto step = [&](std::size_t samples) {
            ddp.begin_step(samples);
            if (samples > 0) {
                std::vector<std::size_t> order = {1, 3, 0, 2};
                if (group.rank() > 0) std::ranges::reverse(order);
                for (const std::size_t i : order) ddp.mark_ready(i);
            }
            ddp.synchronize();
        };
        if (group.size() > 1) step(group.rank() == 0 ? 0 : 1);  // rank 0 has no samples, and so no order yet
        CHECK(ddp.statistics().bucket_bytes == Bytes{800, 200, 4, 400});
        for (int i = 0; i < 3; ++i) {
            for (auto& gradient : gradients) std::ranges::fill(gradient, static_cast<float>(group.rank()));
            step(1);
            CHECK(ddp.statistics().bucket_bytes == Bytes{4, 800, 400, 200});
            for (const auto& gradient : gradients)
                CHECK(gradient.back() == doctest::Approx(mean_of_ranks(group)));
        }
    });
}

TEST_CASE("buckets are not rebuilt if any rank has called gradient_memory") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}, {2, 3}}, gradients = {{1}, {2, 3}};
        DistributedDataParallel ddp(group, values, gradients,
                                    {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        const bool odd = group.rank() == group.size() - 1;
        if (odd) static_cast<void>(ddp.gradient_memory<float>(0));
        for (int i = 0; i < 2; ++i) {
            ddp.mark_ready(0);
            ddp.mark_ready(1);
            ddp.synchronize();
        }
        CHECK(gradients[0][0] == 1);
        CHECK(gradients[1][0] == 2);
        CHECK(ddp.statistics().bucket_bytes == std::vector<std::size_t>{8, 4});
    });
}

TEST_CASE("a parameter that rank 0 does not use is last in rebuilt buckets") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}, {2, 3}, {4, 5, 6}}, gradients = values;
        DistributedDataParallel ddp(group, values, gradients,
                                    {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        for (int i = 0; i < 2; ++i) {
            ddp.mark_ready(0);
            ddp.mark_ready(1);
            ddp.mark_unused(2);
            ddp.synchronize();
            CHECK(ddp.statistics().bucket_bytes == std::vector<std::size_t>{4, 8, 12});
        }
    });
}

TEST_CASE(
    "static_graph: a parameter that no rank used in the first step, and is used later, is an error on all "
    "ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}, {2}}, gradients = {{1}, {2}};
        DistributedDataParallel ddp(
            group, values, gradients,
            {.ready = Ready::marked, .find_unused_parameters = true, .static_graph = true});
        ddp.mark_ready(1);
        ddp.synchronize();
        ddp.mark_ready(1);
        if (group.rank() == group.size() - 1) ddp.mark_ready(0);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text,
                             "static_graph: gradient [0] was marked ready, but no rank used its parameter"));
    });
}

TEST_CASE("the first bucket is cut at 1 MiB, the others at 25 MiB, unless options set the caps") {
    if (test::is_launched()) return;
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        constexpr std::size_t quarter = 1 << 16;  // elements of 256 KiB
        const auto cuts = [&](std::size_t parameters, const dptk::DistributedDataParallelOptions& options) {
            Vectors values(parameters, std::vector<float>(quarter)), gradients = values;
            std::vector<std::size_t> quarters;
            for (const std::size_t bytes :
                 DistributedDataParallel(group, values, gradients, options).statistics().bucket_bytes)
                quarters.push_back(bytes / (quarter * sizeof(float)));
            return quarters;
        };
        using Cuts = std::vector<std::size_t>;
        CHECK(cuts(4 + 100 + 3, {}) == Cuts{4, 100, 3});
        CHECK(cuts(9, {.bucket_cap_mb = 1}) == Cuts{4, 4, 1});
        CHECK(cuts(9, {.bucket_cap_mb = 1, .first_bucket_mb = 0.5}) == Cuts{2, 4, 3});
        CHECK(cuts(9, {.first_bucket_mb = 0.25}) == Cuts{1, 8});
    });
}

TEST_CASE("static_graph: a first step without samples, or one that fails, decides nothing") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}, {2}}, gradients = {{1}, {2}};
        DistributedDataParallel ddp(
            group, values, gradients,
            {.ready = Ready::marked, .find_unused_parameters = true, .static_graph = true});
        ddp.synchronize(0);
        ddp.mark_ready(0);
        ddp.mark_ready(0);
        CHECK_THROWS_AS(ddp.synchronize(), dptk::ArgumentError);
        for (int i = 0; i < 2; ++i) {
            gradients = {{static_cast<float>(group.rank())}, {static_cast<float>(group.rank())}};
            ddp.mark_ready(1);
            ddp.synchronize();
            CHECK(gradients[0][0] == static_cast<float>(group.rank()));
            CHECK(gradients[1][0] == doctest::Approx(mean_of_ranks(group)));
        }
    });
}
