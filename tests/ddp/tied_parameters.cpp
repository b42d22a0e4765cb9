// Tied parameters: a model lists the same memory several times. The gradient counts once, as in one process.
#include <doctest/doctest.h>
#include <dptk/ddp/loss_scaler.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;

/// An embedding that is also the weight of the output layer, and a bias between them.
struct TiedNet {
    std::vector<double> embedding, bias;
    std::vector<double> embedding_gradient, bias_gradient;

    explicit TiedNet(double start = 0)
        : embedding(3, start), bias(2, start), embedding_gradient(3), bias_gradient(2) {}

    void for_each_parameter(dptk::ParameterSink& sink) {
        sink("embedding", embedding, embedding_gradient);
        sink("bias", bias, bias_gradient);
        sink("output", embedding, embedding_gradient);
    }

    void fill_gradients(double value) {
        std::ranges::fill(embedding_gradient, value);
        std::ranges::fill(bias_gradient, 10 * value);
    }
};

[[nodiscard]] double mean_rank(const ProcessGroup& group) {
    return (group.size() + 1) / 2.0;  // rank r contributes r + 1
}

}  // namespace

TEST_CASE("a tied gradient is averaged, clipped and unscaled once") {
    test::on_ranks([](ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const double cap : {test::one_byte, 25.0}) {
                TiedNet net;
                dptk::DistributedDataParallel ddp(group, net, {.bucket_cap_mb = cap, .ready = ready});
                const double mean = mean_rank(group);
                const auto step = [&] {
                    net.fill_gradients(group.rank() + 1);
                    if (ready == Ready::marked)
                        for (const std::size_t i : {2U, 1U, 0U}) ddp.mark_ready(i);
                    ddp.synchronize();
                    CHECK(net.embedding_gradient[2] == doctest::Approx(mean));
                    CHECK(net.bias_gradient[1] == doctest::Approx(10 * mean));
                };
                step();
                CHECK(ddp.clip_grad_norm(1e9).value() ==
                      doctest::Approx(std::sqrt(3 * mean * mean + 2 * 100 * mean * mean)));
                step();
                CHECK(ddp.unscale(4));
                CHECK(net.embedding_gradient[0] == doctest::Approx(mean / 4));
                step();
                CHECK(dptk::clip_grad_norm(ddp.parameters(), 1e-9) > 0);
                std::size_t bytes = 0;
                for (const std::size_t bucket : ddp.statistics().bucket_bytes) bytes += bucket;
                CHECK(bytes == 5 * sizeof(double));
            }
        }
    });
}

TEST_CASE("functions that take parameters count a tied gradient once") {
    test::on_ranks([](ProcessGroup& group) {
        TiedNet net;
        const std::vector<dptk::ParameterRef> parameters = dptk::ParameterSource(net).collect();
        net.fill_gradients(2);
        CHECK(dptk::clip_grad_norm(parameters, 1e9) == doctest::Approx(std::sqrt(3 * 4.0 + 2 * 400.0)));
        CHECK(dptk::LossScaler({.init_scale = 2}).unscale(group, parameters));
        CHECK(net.embedding_gradient[0] == 1);
    });
}

TEST_CASE("a tied gradient is complete when all of its parameters are marked, in any order") {
    test::on_ranks([](ProcessGroup& group) {
        TiedNet net;
        dptk::DistributedDataParallel ddp(group, net,
                                          {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        std::vector<std::size_t> order = {0, 1, 2};
        do {
            net.fill_gradients(group.rank() + 1);
            net.embedding_gradient.assign(3, -1);
            for (const std::size_t i : order) {
                // The last mark of the tied gradient follows its last contribution.
                const bool is_last = i != 1 && (order[2] == i || (order[2] == 1 && order[1] == i));
                if (is_last) net.embedding_gradient.assign(3, group.rank() + 1);
                ddp.mark_ready(i);
            }
            ddp.synchronize();
            CHECK(net.embedding_gradient[1] == doctest::Approx(mean_rank(group)));
            CHECK(net.bias_gradient[0] == doctest::Approx(10 * mean_rank(group)));
        } while (std::ranges::next_permutation(order).found);

        net.fill_gradients(group.rank() + 1);
        ddp.mark_ready(1);
        ddp.mark_unused(0);
        ddp.mark_ready(2);  // used in one of two places
        ddp.synchronize();
        CHECK(net.embedding_gradient[1] == doctest::Approx(mean_rank(group)));

        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                ddp.mark_ready(1);
                ddp.mark_ready(2);
                ddp.synchronize();
            },
            test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "gradient embedding was neither marked ready nor unused"), text);
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                for (const std::size_t i : {2U, 2U, 1U, 0U}) ddp.mark_ready(i);
                ddp.synchronize();
            },
            test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "gradient output was marked twice"), text);
    });
}

TEST_CASE("a tied gradient accumulates once, and may lie in its bucket") {
    test::on_ranks([](ProcessGroup& group) {
        TiedNet net;
        dptk::DistributedDataParallel ddp(group, net);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
            net.fill_gradients(group.rank() + 1);
            ddp.accumulate(1);
        }
        ddp.synchronize();
        CHECK(net.embedding_gradient[0] == doctest::Approx(mean_rank(group)));

        struct Views {
            std::vector<double> value = std::vector<double>(2), before = value;
            std::span<double> gradient = before;
            void for_each_parameter(dptk::ParameterSink& sink) {
                sink("a", value, gradient);
                sink("b", value, gradient);
            }
        } views;
        dptk::DistributedDataParallel in_buckets(group, views);
        CHECK(in_buckets.gradient_memory<double>(0).data() == in_buckets.gradient_memory<double>(1).data());
        views.gradient = in_buckets.gradient_memory<double>(1);
        std::ranges::fill(views.gradient, group.rank() + 1);
        in_buckets.synchronize();
        CHECK(views.gradient[0] == doctest::Approx(mean_rank(group)));
    });
}

TEST_CASE("a sharded optimizer steps tied parameters once, with any number of ranks") {
    const auto check = [](ProcessGroup& group) {
        for (const bool fused : {false, true}) {
            for (const bool view : {false, true}) {
                TiedNet net(1);
                dptk::ShardedOptimizer sharded(
                    group, net, dptk::SGD<double>({.lr = 0.5, .momentum = 0.9}), {},
                    {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no,
                     .parameters_as_bucket_view = view});
                for (int step = 0; step < 2; ++step) {
                    net.fill_gradients(1);
                    sharded.synchronize();
                    sharded.step();
                }
                for (const double value : net.embedding) CHECK(value == doctest::Approx(1 - 0.5 - 0.5 * 1.9));
                if (view) CHECK(sharded.value_memory(2).data() == sharded.value_memory(0).data());
            }
        }
    };
    test::on_ranks(check);
    if (!test::is_launched()) test::launch_on_hosts({"a", "a", "a"}, check);
}

TEST_CASE("a sharded optimizer refuses one value with two gradients") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value(100, 1), first(100), second(100);
        std::vector<std::span<double>> values = {value, value}, gradients = {first, second};
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] { dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<double>({.lr = 1})); },
            test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "the same value but separate gradients"), text);
        first.assign(100, group.rank() + 1), second.assign(100, 2.0 * (group.rank() + 1));
        dptk::DistributedDataParallel ddp(group, values, gradients);  // the program adds both
        ddp.synchronize();
        CHECK(first[0] == doctest::Approx(mean_rank(group)));
        CHECK(second[0] == doctest::Approx(2 * mean_rank(group)));
    });
}

TEST_CASE("reproducible training sums a tied gradient once") {
    test::on_ranks([](ProcessGroup& group) {
        TiedNet net;
        dptk::ReproducibleDataParallel ddp(group, dptk::ParameterSource(net), 8 * 3);
        for (std::size_t shard = 0; shard < ddp.shards().size(); ++shard) {
            net.fill_gradients(3);
            ddp.add_shard(2);
        }
        ddp.synchronize();
        CHECK(net.embedding_gradient[0] == doctest::Approx(3));
        CHECK(net.bias_gradient[0] == doctest::Approx(30));
    });
}

TEST_CASE("ranks that tie different parameters are a MismatchError") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<float> value(2), other(2), gradient(2), separate(2);
        const bool odd = group.rank() == group.size() - 1;
        std::vector<std::span<float>> values = {value, other},
                                      gradients = {gradient, odd ? separate : gradient};
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { dptk::DistributedDataParallel ddp(group, values, gradients); }, test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "the gradient of [1] is also that of [0]"), text);
    });
}

TEST_CASE("memory that overlaps in any other way is an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> a(10), b(10), c(10);
        using Spans = std::vector<std::span<float>>;
        const auto check = [&](Spans values, Spans gradients, const std::string& part) {
            std::string text;
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { dptk::DistributedDataParallel ddp(group, values, gradients); },
                test::Agreed::yes));
            CHECK_MESSAGE(test::contains(text, part), text);
        };
        check({a}, {a}, "parameter [0] has its value and its gradient in the same memory");
        check({a, b}, {b, c}, "the value of [1] and the gradient of [0] overlap");
        check({std::span(a).first(6)}, {std::span(a).last(6)},
              "the value of [0] and the gradient of [0] overlap");
        check({std::span(a).first(6), std::span(a).last(5)}, {std::span(b).first(6), std::span(c).last(5)},
              "the value of [0] and the value of [1] overlap");
    });
}

TEST_CASE("parameters must stay tied, and are ignored together") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value(2), first(2), second(2);
        std::vector<std::span<float>> values = {value, value}, gradients = {first, first};
        std::string text;
        dptk::DistributedDataParallel ddp(group, values, gradients);
        ddp.synchronize();
        if (group.rank() == 0) gradients[1] = second;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "[0] and [1] no longer have one gradient in memory"), text);
        gradients[1] = gradients[0] = second;
        CHECK_NOTHROW(ddp.synchronize());
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                dptk::DistributedDataParallel(group, values, gradients, {.parameters_to_ignore = {"[1]"}});
            },
            test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "names only one of [0] and [1]"), text);
    });
}
