// Compares communication hooks with the all-reduce, and tests the guarantees of each hook.
#include <doctest/doctest.h>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/post_local_sgd.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/host_matrix.hpp"
#include "support/messages_only.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::CommHook;
using dptk::DistributedDataParallel;
using dptk::HookBucket;
using dptk::ProcessGroup;
using dptk::Ready;
using test::HostMatrix;

/// Returns the averages of a step in which element e of gradient g on rank r is f(r, g, e).
template <class F>
std::vector<std::vector<float>> average(ProcessGroup& group, const std::shared_ptr<CommHook>& hook,
                                        Ready ready, bool with_samples, F&& f) {
    std::vector<std::vector<float>> values = {std::vector<float>(7), std::vector<float>(100),
                                              std::vector<float>(1)};
    std::vector<std::vector<float>> gradients = values;
    DistributedDataParallel ddp(group, values, gradients, {.bucket_cap_mb = test::one_byte, .ready = ready});
    ddp.set_comm_hook(hook);
    for (int step = 0; step < 3; ++step) {
        for (std::size_t g = 0; g < gradients.size(); ++g) {
            for (std::size_t e = 0; e < gradients[g].size(); ++e) gradients[g][e] = f(group.rank(), g, e);
        }
        if (with_samples) {
            ddp.begin_step(static_cast<std::size_t>(group.rank()));
        } else {
            ddp.begin_step();
        }
        if (ready == Ready::marked) {
            for (std::size_t i = 3; i-- > 0;) ddp.mark_ready(i);
        }
        ddp.synchronize();
    }
    return gradients;
}

float some(int rank, std::size_t g, std::size_t e) {
    return std::sin(static_cast<float>(rank + 1) * 0.7F + static_cast<float>(g * 100 + e));
}

void check_close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                 double tolerance) {
    double largest = 0;
    for (std::size_t g = 0; g < a.size(); ++g) {
        for (std::size_t e = 0; e < a[g].size(); ++e)
            largest = std::max(largest, static_cast<double>(std::abs(a[g][e] - b[g][e])));
    }
    CHECK(largest <= tolerance);
}

}  // namespace

TEST_CASE("hooks give the all-reduce's averages, within their precision") {
    test::on_ranks([](ProcessGroup& group) {
        const auto own = dptk::comm_hook([](ProcessGroup& ranks, HookBucket& bucket) {
            ranks.engine().run(
                {.verb = dptk::Verb::all_reduce, .input = bucket.elements, .output = bucket.elements});
        });
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            const bool with_samples = ready == Ready::marked;
            const auto expected = average(group, nullptr, ready, with_samples, some);
            const auto check = [&](const std::shared_ptr<CommHook>& hook, double tolerance) {
                check_close(average(group, hook, ready, with_samples, some), expected, tolerance);
            };
            check(dptk::hooks::allreduce(), 1e-6);
            check(own, 1e-6);
            check(dptk::hooks::fp16_compress(), 1e-3);
            check(dptk::hooks::bf16_compress(), 1e-2);
            check(dptk::hooks::fp16_compress(own), 1e-3);
            check(dptk::hooks::bf16_compress(own), 1e-2);
            check(dptk::hooks::fp16_compress(dptk::hooks::powersgd()), 1e-3);
            check(dptk::hooks::powersgd(), 1e-6);  // does not compress yet
        }
    });
}

TEST_CASE("a hook is not captured into a CUDA graph unless it says that it may be") {
    class Plain final : public dptk::CommHook {
        [[nodiscard]] std::string description() const override { return "plain"; }
        void reduce(ProcessGroup&, HookBucket&) override {}
    };
    CHECK_FALSE(Plain().is_capturable());
    CHECK_FALSE(dptk::comm_hook([](ProcessGroup&, HookBucket&) {})->is_capturable());
    CHECK(dptk::hooks::allreduce()->is_capturable());
    CHECK(dptk::hooks::bf16_compress()->is_capturable());
}

TEST_CASE("compressed gradients near the largest f16 do not overflow") {
    test::on_ranks([](ProcessGroup& group) {
        for (const bool with_samples : {true, false}) {
            const auto large = [](int, std::size_t, std::size_t) { return 60000.0F; };
            if (with_samples && group.size() == 1) continue;  // the only rank has no samples
            for (const auto& hook : {dptk::hooks::fp16_compress(), dptk::hooks::bf16_compress()}) {
                const auto result = average(group, hook, Ready::marked, with_samples, large);
                CHECK(result[1][99] == doctest::Approx(60000).epsilon(0.01));
            }
        }
    });
}

TEST_CASE("a hook that throws on one rank is an error of all ranks") {
    if (test::is_launched()) return;
    std::string text;
    CHECK(test::throws<dptk::Error>(text, [] {
        dptk::launch_threads(2, [](ProcessGroup& group) {
            const auto hook = dptk::comm_hook([](ProcessGroup& ranks, HookBucket& bucket) {
                if (ranks.rank() == 1) throw dptk::ArgumentError("this hook is broken");
                ranks.engine().run(
                    {.verb = dptk::Verb::all_reduce, .input = bucket.elements, .output = bucket.elements});
            });
            static_cast<void>(average(group, hook, Ready::marked, false, some));
        });
    }));
    CHECK(test::contains(text, "this hook is broken"));
}

TEST_CASE("hooks that differ between ranks, and mistakes under a hook, are errors of all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1}, {2}}, gradients = {{1}, {2}};
        DistributedDataParallel ddp(group, values, gradients,
                                    {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        const bool odd = group.rank() == group.size() - 1;
        std::string text;
        if (group.size() > 1) {
            CHECK(test::throws<dptk::MismatchError>(
                text,
                [&] { ddp.set_comm_hook(odd ? dptk::hooks::fp16_compress() : dptk::hooks::bf16_compress()); },
                test::Agreed::yes));
            CHECK(test::contains(text, "f16 compression of allreduce"));
        }
        ddp.set_comm_hook(dptk::hooks::allreduce());
        ddp.mark_ready(1);
        if (!odd) ddp.mark_ready(0);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "gradient [0] was neither marked"));
        ddp.mark_ready(1);
        ddp.mark_ready(0);
        ddp.synchronize();
        CHECK(gradients[1][0] == 2);
    });
}

TEST_CASE("over a transport without a duplicate a hook runs inside synchronize") {
    const dptk::detail::ThreadJob job(3, {});
    dptk::launch_threads(3, [&](const ProcessGroup& threads) {
        ProcessGroup group = dptk::BasicCommunicator(test::MessagesOnly(job, threads.rank()));
        const auto expected = average(group, nullptr, Ready::marked, true, some);
        check_close(average(group, dptk::hooks::fp16_compress(), Ready::marked, true, some), expected, 1e-3);
    });
}

TEST_CASE(
    "post_local_sgd: from start_step on, gradients are averaged in subgroups, and parameters over all "
    "ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() % 2 != 0) return;
        std::vector<float> value(3, static_cast<float>(group.rank())), gradient(3);
        DistributedDataParallel ddp(group, value, gradient, {.init_sync = false});
        ddp.set_comm_hook(dptk::hooks::post_local_sgd(group.split(group.rank() / 2), {.start_step = 1}));
        const auto step = [&](float own) {
            std::ranges::fill(gradient, own);
            ddp.synchronize();
            return gradient[0];
        };
        const auto rank = static_cast<float>(group.rank());
        CHECK(step(rank) == doctest::Approx(static_cast<float>(group.size() - 1) / 2));
        const float pair = static_cast<float>(group.rank() / 2 * 2) + 0.5F;
        CHECK(step(rank) == doctest::Approx(pair));
        dptk::PeriodicModelAverager averager(group, 3, 1);
        CHECK_FALSE(averager.average_parameters(ddp.parameters()));  // step 0 is a warm-up step
        CHECK(averager.average_parameters(ddp.parameters()));
        CHECK(value[2] == doctest::Approx(static_cast<float>(group.size() - 1) / 2));
        CHECK_FALSE(averager.average_parameters(ddp.parameters()));
        CHECK_THROWS_AS(dptk::PeriodicModelAverager(group, 0), dptk::ArgumentError);
    });
}

TEST_CASE("PowerSGD: exact for gradients of its rank") {
    test::on_ranks([](ProcessGroup& group) {
        constexpr std::size_t rows = 20, columns = 30;
        HostMatrix value(rows, columns), gradient(rows, columns);
        std::vector<float> bias(5), bias_gradient(5);
        const auto hook = dptk::hooks::powersgd({.matrix_approximation_rank = 2, .start_step = 0});
        DistributedDataParallel ddp(group, std::tie(value, bias), std::tie(gradient, bias_gradient));
        ddp.set_comm_hook(hook);
        const auto fill = [&](auto&& f) {
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t c = 0; c < columns; ++c) gradient.elements[r * columns + c] = f(r, c);
            }
            std::ranges::fill(bias_gradient, static_cast<float>(group.rank()));
        };
        // A matrix of rank 2: the sum of two products, which differ between ranks only by a factor.
        const auto of_rank_2 = [](std::size_t r, std::size_t c) {
            return std::sin(static_cast<float>(r)) * std::cos(static_cast<float>(c)) +
                   static_cast<float>(r) * 0.1F * static_cast<float>(c % 3);
        };
        const float factor = static_cast<float>(group.rank() + 1);
        const float mean = static_cast<float>(group.size() + 1) / 2;
        fill([&](std::size_t r, std::size_t c) { return factor * of_rank_2(r, c); });
        ddp.synchronize();
        CHECK(bias_gradient[4] == doctest::Approx(mean - 1));
        for (std::size_t i = 0; i < rows * columns; i += 7)
            CHECK(gradient.elements[i] ==
                  doctest::Approx(mean * of_rank_2(i / columns, i % columns)).epsilon(1e-3));
        CHECK(hook->bytes_sent() == ((rows + columns) * 2 + 5) * sizeof(float));
    });
}

TEST_CASE("PowerSGD keeps zeros between columns, and does not compress other matrices with padding") {
    test::on_ranks([](ProcessGroup& group) {
        constexpr std::size_t rows = 30, columns = 20, distance = 24;  // each column has 24 elements
        for (const std::uint64_t layout : {dptk::padded_columns(distance), std::uint64_t{77}}) {
            const bool is_known = layout != 77;
            std::vector<float> value(rows * distance), gradient = value;
            struct Model {
                dptk::ParameterRef parameter;
                void for_each_parameter(dptk::ParameterSink& sink) { sink(parameter); }
            } model{{.name = "w",
                     .shape = {columns, rows},
                     .count = value.size(),
                     .value = value.data(),
                     .gradient = gradient.data(),
                     .layout = layout}};
            const auto hook = dptk::hooks::powersgd({.start_step = 0});
            DistributedDataParallel ddp(group, model);
            ddp.set_comm_hook(hook);
            for (std::size_t i = 0; i < gradient.size(); ++i)
                gradient[i] = i % distance < columns ? std::sin(static_cast<float>(i)) : 0;
            ddp.synchronize();
            bool are_zeros = true;
            for (std::size_t i = 0; i < gradient.size(); ++i)
                if (i % distance >= columns) are_zeros = are_zeros && gradient[i] == 0;
            CHECK(are_zeros);
            const std::size_t sent = is_known ? rows + distance : gradient.size();
            CHECK(hook->bytes_sent() == sent * sizeof(float));
        }
    });
}

TEST_CASE("PowerSGD: error feedback adds the errors to later gradients") {
    test::on_ranks([](ProcessGroup& group) {
        constexpr std::size_t rows = 20, columns = 30;
        // A matrix of full rank, which is not a sum of two products.
        const auto element = [](int rank, std::size_t i) {
            const auto x = static_cast<double>(i * i % 101 + i % 7);
            return static_cast<float>(std::sin(x + 0.3 * static_cast<double>(i)) + 0.1 * rank);
        };
        // Relative error of the sum of all outputs, compared with the sum of all inputs.
        const auto missed = [&](const dptk::hooks::PowerSGDOptions& options) {
            HostMatrix value(rows, columns), gradient(rows, columns);
            DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient));
            ddp.set_comm_hook(dptk::hooks::powersgd(options));
            std::vector<double> out(rows * columns), in(rows * columns);
            for (int step = 0; step < 120; ++step) {
                for (std::size_t i = 0; i < in.size(); ++i) {
                    gradient.elements[i] = element(group.rank(), i);
                    for (int rank = 0; rank < group.size(); ++rank)
                        in[i] += static_cast<double>(element(rank, i)) / group.size();
                }
                ddp.synchronize();
                for (std::size_t i = 0; i < out.size(); ++i)
                    out[i] += static_cast<double>(gradient.elements[i]);
            }
            double difference = 0, all = 0;
            for (std::size_t i = 0; i < in.size(); ++i) {
                difference += (in[i] - out[i]) * (in[i] - out[i]);
                all += in[i] * in[i];
            }
            return std::sqrt(difference / all);
        };
        const double fed_back = missed({.matrix_approximation_rank = 2, .start_step = 0});
        CHECK(fed_back < 0.15);
        CHECK(missed({.matrix_approximation_rank = 2, .start_step = 0, .warm_start = false}) < 0.3);
        CHECK(missed({.matrix_approximation_rank = 2, .start_step = 0, .use_error_feedback = false}) >
              3 * fed_back);
    });
}

TEST_CASE("PowerSGD: errors stay with their parameters when buckets are rebuilt") {
    test::on_ranks([](ProcessGroup& group) {
        constexpr std::size_t rows = 10, columns = 20;
        // Gradients become ready in the order of registration, so that the second step has another order
        // in its only bucket than the first step.
        const auto run = [&](Ready ready) {
            HostMatrix a(rows, columns), b(rows, columns), da(rows, columns), db(rows, columns);
            DistributedDataParallel ddp(group, std::tie(a, b), std::tie(da, db), {.ready = ready});
            ddp.set_comm_hook(dptk::hooks::powersgd({.start_step = 0}));
            for (int step = 0; step < 4; ++step) {
                for (std::size_t i = 0; i < rows * columns; ++i) {
                    da.elements[i] = std::sin(static_cast<float>(i * i % 53) + static_cast<float>(step));
                    db.elements[i] = 100 * std::cos(static_cast<float>(i * i % 47));
                }
                if (ready == Ready::marked) {
                    ddp.mark_ready(0);
                    ddp.mark_ready(1);
                }
                ddp.synchronize();
            }
            return da.elements;
        };
        const std::vector<float> stayed = run(Ready::at_synchronize), marked = run(Ready::marked);
        for (std::size_t i = 0; i < stayed.size(); ++i)
            CHECK(marked[i] == doctest::Approx(stayed[i]).epsilon(1e-3));
    });
}

TEST_CASE("PowerSGD continues from a saved state as if it had never stopped") {
    test::on_ranks([](ProcessGroup& group) {
        const auto run = [&](int steps, const std::shared_ptr<dptk::hooks::PowerSGD>& hook, int first) {
            HostMatrix value(12, 10), gradient(12, 10);
            DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient));
            ddp.set_comm_hook(hook);
            for (int step = first; step < first + steps; ++step) {
                for (std::size_t i = 0; i < 120; ++i)
                    gradient.elements[i] = std::sin(static_cast<float>(i * 7) + static_cast<float>(step) +
                                                    static_cast<float>(group.rank()));
                ddp.synchronize();
            }
            return gradient.elements;
        };
        const dptk::hooks::PowerSGDOptions options{.start_step = 3};
        const auto whole = dptk::hooks::powersgd(options);
        const auto first = dptk::hooks::powersgd(options);
        const auto second = dptk::hooks::powersgd(options);
        const std::vector<float> expected = run(8, whole, 0);
        static_cast<void>(run(5, first, 0));
        second->load_state(first->state());
        CHECK(run(3, second, 5) == expected);
        CHECK(second->state().steps == 8);
        CHECK(first->state().steps == 5);
        CHECK(first->state().errors.at(0).size() == 120);
        CHECK_THROWS_AS(dptk::hooks::PowerSGD({.matrix_approximation_rank = 0}), dptk::ArgumentError);
        CHECK_THROWS_AS(dptk::hooks::PowerSGD({.min_compression_rate = -1}), dptk::ArgumentError);
    });
}
