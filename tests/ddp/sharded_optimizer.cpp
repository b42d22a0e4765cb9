// Compares the sharded optimizer (ZeRO-1) with one process that has the whole state.
#include <doctest/doctest.h>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::FusedStep;
using dptk::ProcessGroup;
using dptk::Ready;
using dptk::ShardedOptimizer;
using dptk::ShardedOptimizerOptions;

constexpr ShardedOptimizerOptions all_options[] = {
    {.fused_step = FusedStep::no, .parameters_as_bucket_view = false},
    {.fused_step = FusedStep::no, .parameters_as_bucket_view = true},
    {.fused_step = FusedStep::yes, .parameters_as_bucket_view = false},
    {.fused_step = FusedStep::yes, .parameters_as_bucket_view = true}};

/// Calls fn(group) on ranks that share memory, and on ranks that do not.
template <class Fn>
void with_and_without_shared_memory(Fn&& fn) {
    test::on_ranks(fn);
    if (test::is_launched()) return;
    for (const std::size_t ranks : {2U, 3U, 4U})
        test::launch_on_hosts(std::vector<std::string>(ranks, "a"), fn);
    test::launch_on_hosts({"a", "b", "b"}, fn);
}

std::vector<std::size_t> sharded_batch(int rank, int step) {
    std::vector<std::size_t> samples;
    for (int i = 0; i < (rank + step) % 3 + (rank == 0 ? 1 : 0); ++i)
        samples.push_back(static_cast<std::size_t>(100 * step + 10 * rank + i));
    return samples;
}

/// Runs one step of a rank.
template <class Sharded, class T>
void step_once(Sharded& sharded, test::SmallNet<T>& net, int rank, int step, Ready ready) {
    const auto samples = sharded_batch(rank, step);
    sharded.begin_step(samples.size());
    net.forward_backward(samples);
    if (ready == Ready::marked && !samples.empty()) {
        for (std::size_t i = 4; i-- > 0;) sharded.mark_ready(i);
    }
    sharded.synchronize();
}

/// Runs the same step in one process, on all ranks' batches.
template <class O, class T>
void sharded_step_alone(O& optimizer, test::SmallNet<T>& net, int ranks, int step) {
    std::vector<std::size_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto samples = sharded_batch(rank, step);
        all.insert(all.end(), samples.begin(), samples.end());
    }
    net.forward_backward(all);
    for (std::size_t i = 0; i < 4; ++i) optimizer.step(i, std::span(net.values[i]), net.gradients[i]);
}

template <class O>
void compare(ProcessGroup& group, const O& optimizer, int steps, double tolerance,
             const ShardedOptimizerOptions& options = {}) {
    using T = typename O::Scalar;
    for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
        for (const double cap : {test::one_byte, 25.0}) {
            test::SmallNet<T> net(group.rank());
            test::SmallNet<T> alone(0);
            O whole = optimizer;
            ShardedOptimizer sharded(group, net.values, net.gradients, optimizer,
                                     {.bucket_cap_mb = cap, .ready = ready}, options);
            const bool is_long = ready == Ready::marked && cap == test::one_byte;
            for (int step = 0; step < (is_long ? steps : 3); ++step) {
                step_once(sharded, net, group.rank(), step, ready);
                sharded.step();
                sharded_step_alone(whole, alone, group.size(), step);
            }
            CHECK(test::largest_difference(net.values, alone.values) < tolerance);
        }
    }
}

}  // namespace

TEST_CASE("sharded steps of each optimizer equal those of one process") {
    test::on_ranks([](ProcessGroup& group) {
        compare(group, dptk::Adam<double>({.lr = 0.01}), 50, 1e-9);
        compare(group, dptk::Adam<float>({.lr = 0.01}), 50, 2e-4);
        compare(group, dptk::AdamW<double>({.lr = 0.01}), 5, 1e-9);
        compare(group, dptk::SGD<double>({.lr = 0.1, .momentum = 0.9}), 5, 1e-12);
        compare(group, dptk::SGD<double>({.lr = 0.1}), 5, 1e-12);
    });
}

TEST_CASE("sharded steps with all options equal those of one process") {
    with_and_without_shared_memory([](ProcessGroup& group) {
        for (const ShardedOptimizerOptions& options : all_options)
            compare(group, dptk::Adam<double>({.lr = 0.01}), 10, 1e-9, options);
    });
}

TEST_CASE(
    "a fused step computes the same bits as separate steps, and values may live in the optimizer's memory") {
    struct Model {
        std::vector<std::size_t> counts = {70'001, 3, 40'000};
        std::vector<std::vector<float>> values, gradients;
        std::vector<float*> places;

        Model() {
            for (const std::size_t count : counts) {
                values.emplace_back(count, 1.0F);
                gradients.emplace_back(count);
            }
            for (auto& value : values) places.push_back(value.data());
        }
        void for_each_parameter(dptk::ParameterSink& sink) {
            for (std::size_t i = 0; i < counts.size(); ++i)
                sink(std::to_string(i), std::span(places[i], counts[i]), gradients[i]);
        }
        void backward(int rank, int step) {
            for (auto& gradient : gradients) {
                for (std::size_t k = 0; k < gradient.size(); ++k)
                    gradient[k] =
                        std::sin(static_cast<float>(k + 1) * 0.37F + static_cast<float>(rank * 7 + step));
            }
        }
        [[nodiscard]] std::vector<std::vector<float>> result() const {
            std::vector<std::vector<float>> out;
            for (std::size_t i = 0; i < counts.size(); ++i)
                out.emplace_back(places[i], places[i] + counts[i]);
            return out;
        }
    };
    with_and_without_shared_memory([](ProcessGroup& group) {
        std::vector<std::vector<std::vector<float>>> results;
        for (const ShardedOptimizerOptions& options : all_options) {
            for (const bool in_place : {false, true}) {
                if (in_place && !options.parameters_as_bucket_view) continue;
                Model model;
                ShardedOptimizer sharded(group, model, dptk::Adam<float>({.lr = 0.01}),
                                         {.bucket_cap_mb = 0.2}, options);
                for (std::size_t i = 0; in_place && i < model.counts.size(); ++i) {
                    const std::span<float> place = sharded.value_memory(i);
                    std::ranges::copy(model.values[i], place.begin());
                    model.places[i] = place.data();
                }
                for (int step = 0; step < 5; ++step) {
                    model.backward(group.rank(), step);
                    if (step % 2 == 0) sharded.synchronize();
                    if (step % 2 == 1) sharded.synchronize(static_cast<std::size_t>(group.rank()));
                    sharded.step();
                }
                results.push_back(model.result());
            }
        }
        REQUIRE(results.size() == 6);
        CHECK(results[0][0][5] != 1.0F);
        for (std::size_t i = 1; i < results.size(); ++i) {
            CAPTURE(i);
            CHECK(results[i] == results[0]);
        }
    });
}

TEST_CASE("a fused step sums piece by piece if ranks share memory") {
    // While the first piece is stepped, the gradients of the next pieces are not reduced yet.
    const auto next_is_summed = [](ProcessGroup& group) {
        std::vector<float> value(200'000), gradient(200'000, static_cast<float>(group.rank()));
        float next = -1;
        const float* last = nullptr;
        ShardedOptimizer sharded(group, value, gradient,
                                 dptk::FunctionOptimizer<float>([&](std::size_t slot, std::span<float>,
                                                                    std::span<const float> gradients) {
                                     if (slot == 0) next = gradients.data()[gradients.size()];
                                     last = gradients.data();
                                 }),
                                 {}, {.fused_step = FusedStep::yes});
        sharded.synchronize();
        sharded.step();
        REQUIRE(last != nullptr);
        return next != static_cast<float>(group.rank());
    };
    test::launch_on_hosts({"a", "a"}, [&](ProcessGroup& group) { CHECK_FALSE(next_is_summed(group)); });
    test::launch_on_hosts({"a", "b"}, [&](ProcessGroup& group) { CHECK(next_is_summed(group)); });
}

TEST_CASE("step() needs a synchronize() before it") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value(3), gradient(3, 1);
        ShardedOptimizer sharded(group, value, gradient, dptk::SGD<float>({.lr = 1}));
        CHECK_THROWS_WITH_AS(sharded.step(), "step() without synchronize(): call synchronize() first",
                             dptk::ArgumentError);
        {
            const auto local = sharded.no_sync();
            sharded.synchronize();
        }
        CHECK_THROWS_AS(sharded.step(), dptk::ArgumentError);
        sharded.synchronize();
        sharded.step();
        CHECK_THROWS_AS(sharded.step(), dptk::ArgumentError);
        CHECK(value[0] == -1);
    });
}

TEST_CASE("an optimizer that throws on one rank ends the step of all") {
    if (test::is_launched()) return;
    for (const ShardedOptimizerOptions& options : all_options) {
        std::atomic<int> lost = 0;
        const auto step = [&](ProcessGroup& group) {
            std::vector<float> value(100), gradient(100);
            const dptk::FunctionOptimizer<float> optimizer(
                [&](std::size_t, std::span<float>, std::span<const float>) {
                    if (group.rank() == 1) throw std::runtime_error("out of luck");
                });
            ShardedOptimizer sharded(group, value, gradient, optimizer, {}, options);
            sharded.synchronize();
            try {
                sharded.step();
            } catch (const dptk::PeerLostError& error) {
                CHECK(test::contains(error.what(), "out of luck"));
                ++lost;
                throw;
            }
        };
        CHECK_THROWS_AS(test::launch_on_hosts({"a", "a", "a"}, step), std::runtime_error);
        CHECK(lost == 2);
    }
}

TEST_CASE(
    "calls before synchronize(), value_memory() without its option, and options that differ are errors") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value(3), gradient(3);
        const dptk::SGD<float> sgd({.lr = 1});
        ShardedOptimizer sharded(group, value, gradient, sgd);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] { static_cast<void>(sharded.clip_grad_norm(1)); }));
        CHECK(text == "clip_grad_norm() without synchronize(): call synchronize() first");
        CHECK_THROWS_AS(sharded.clip_grad_value(1), dptk::ArgumentError);
        CHECK_THROWS_AS(static_cast<void>(sharded.unscale(2)), dptk::ArgumentError);
        CHECK_THROWS_AS(static_cast<void>(sharded.value_memory(0)), dptk::ArgumentError);
        ShardedOptimizer viewed(group, value, gradient, sgd, {}, {.parameters_as_bucket_view = true});
        CHECK(viewed.value_memory(0)[2] == value[2]);
        CHECK_THROWS_AS(static_cast<void>(viewed.value_memory(1)), dptk::ArgumentError);
        if (group.size() == 1) return;
        const ShardedOptimizerOptions own{.fused_step = group.rank() == 1 ? FusedStep::yes : FusedStep::no};
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { const ShardedOptimizer other(group, value, gradient, sgd, {}, own); },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 1 has fused_step yes"));
        const Ready ready = group.rank() == 1 ? Ready::marked : Ready::at_synchronize;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { const ShardedOptimizer other(group, value, gradient, sgd, {.ready = ready}); },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 1 has ready marked"));
    });
}

TEST_CASE("by default a step is fused if ranks share memory, and nothing can be sent during backward") {
    const auto is_fused = [](ProcessGroup& group, Ready ready) {
        std::vector<float> value(3), gradient(3);
        return ShardedOptimizer(group, value, gradient, dptk::SGD<float>({.lr = 1}), {.ready = ready})
            .is_fused();
    };
    test::launch_on_hosts({"a", "a"}, [&](ProcessGroup& group) {
        CHECK(is_fused(group, Ready::at_synchronize));
        CHECK(is_fused(group, Ready::marked) == group.engine().competes_with_compute());
    });
    test::launch_on_hosts({"a", "b"},
                          [&](ProcessGroup& group) { CHECK_FALSE(is_fused(group, Ready::at_synchronize)); });
}

TEST_CASE("a user-defined optimizer steps its parts") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value(1000), gradient(1000, static_cast<double>(group.rank()));
        std::map<std::size_t, std::size_t> slots;
        ShardedOptimizer sharded(
            group, value, gradient,
            dptk::FunctionOptimizer<double>(
                [&](std::size_t slot, std::span<double> values, std::span<const double> gradients) {
                    slots[slot] += values.size();
                    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= gradients[i];
                }));
        sharded.synchronize();
        sharded.step();
        for (const double element : value) CHECK(element == doctest::Approx(-(group.size() - 1) / 2.0));
        std::size_t own = 0;
        for (const auto& [slot, count] : slots) own += count;
        CHECK(group.all_reduce_value(own) == 1000);
        CHECK(sharded.state().size() == (group.rank() == 0 ? 1U : 0U));
    });
}

TEST_CASE("each rank keeps its part of the state, with little overhead") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {std::vector<float>(10000), std::vector<float>(1),
                                                  std::vector<float>(3333), std::vector<float>(17)};
        auto gradients = values;
        ShardedOptimizer sharded(group, values, gradients, dptk::Adam<float>());
        sharded.synchronize(1);
        sharded.step();
        std::size_t kept = 0;
        for (std::size_t slot = 0; slot < 8; ++slot) {
            for (const auto& array : sharded.optimizer().state(slot).arrays) kept += array.size();
        }
        const double whole = 2.0 * (10000 + 1 + 3333 + 17);
        CHECK(static_cast<double>(kept) <= whole / group.size() * 1.05);
        CHECK(static_cast<double>(group.all_reduce_value(kept)) >= whole);
    });
}

TEST_CASE("a state that was saved with four ranks can be loaded with any number of ranks") {
    if (test::is_launched()) return;
    std::vector<dptk::OptimizerState<double>> saved;
    std::vector<std::vector<double>> values;
    const dptk::Adam<double> adam({.lr = 0.01});
    test::SmallNet<double> alone(0);
    dptk::Adam<double> whole = adam;
    for (int step = 0; step < 10; ++step) sharded_step_alone(whole, alone, 4, step);
    dptk::launch_threads(4, [&](ProcessGroup& group) {
        test::SmallNet<double> net(0);
        ShardedOptimizer sharded(group, net.values, net.gradients, adam, {.bucket_cap_mb = test::one_byte});
        for (int step = 0; step < 10; ++step) {
            step_once(sharded, net, group.rank(), step, Ready::at_synchronize);
            sharded.step();
        }
        auto state = sharded.state(1);
        CHECK(state.size() == (group.rank() == 1 ? 4U : 0U));
        CHECK(sharded.state_size().steps == 10);
        CHECK(sharded.state_size().arrays == 2);
        for (std::size_t i = 0; i < 4; ++i)
            CHECK(sharded.state_array(i, 1, 1) ==
                  (group.rank() == 1 ? state[i].arrays[1] : std::vector<double>()));
        CHECK_THROWS_AS(static_cast<void>(sharded.state_array(4, 0)), dptk::ArgumentError);
        if (group.rank() == 1) {
            saved = std::move(state);
            values = net.values;
        }
    });
    CHECK(test::largest_difference(values, alone.values) < 1e-10);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(saved[i].steps == 10);
        CHECK(test::largest_difference(saved[i].arrays, whole.state(i).arrays) < 1e-10);
    }
    for (int step = 10; step < 20; ++step) sharded_step_alone(whole, alone, 1, step);
    for (const int ranks : {1, 2, 3, 8}) {
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            test::SmallNet<double> net(0);
            if (group.rank() == 0) net.values = values;
            ShardedOptimizer sharded(group, net.values, net.gradients, adam);
            for (std::size_t i = 0; i < 4; ++i) sharded.load_state_of(i, saved[i]);
            for (int step = 10; step < 20; ++step) {
                // Rank 0 has all samples.
                const auto samples = group.rank() == 0 ? sharded_batch(0, step) : std::vector<std::size_t>();
                net.forward_backward(samples);
                sharded.synchronize(samples.size());
                sharded.step();
            }
            CHECK(test::largest_difference(net.values, alone.values) < 1e-10);
            std::string text;
            CHECK(test::throws<dptk::ArgumentError>(text, [&] { sharded.load_state({}); }));
            CHECK(test::contains(text, "load_state: expected an optimizer's state of 4 parameters, got 0"));
        });
    }
}

namespace {

struct TiedAndIgnored {
    std::vector<float> value = std::vector<float>(100), gradient = std::vector<float>(100, 1);
    std::vector<float> ignored = value, ignored_gradient = gradient;

    void for_each_parameter(auto& sink) {
        sink("first", value, gradient);
        sink("tied", value, gradient);
        sink("ignored", ignored, ignored_gradient);
    }
};

}  // namespace

TEST_CASE("ignored parameters, and those tied to earlier ones, have no state of their own") {
    test::on_ranks([](ProcessGroup& group) {
        TiedAndIgnored model;
        ShardedOptimizer sharded(group, model, dptk::Adam<float>(), {.parameters_to_ignore = {"ignored"}});
        sharded.synchronize();
        sharded.step();
        CHECK(sharded.has_state(0));
        CHECK_FALSE(sharded.has_state(1));
        CHECK_FALSE(sharded.has_state(2));
        CHECK_THROWS_AS(static_cast<void>(sharded.has_state(3)), dptk::ArgumentError);
        for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
            CHECK_THROWS_AS(static_cast<void>(sharded.state_array(i, 0)), dptk::ArgumentError);
        const auto state = sharded.state();
        if (group.rank() != 0) return;
        REQUIRE(state.size() == 3);
        CHECK(state[0].arrays.at(1).size() == 100);
        CHECK(state[1].arrays.empty());
        CHECK(state[2].arrays.empty());
        CHECK_THROWS_AS(sharded.load_state_of(0, {1, {std::vector<float>(99)}}), dptk::ArgumentError);
    });
}

TEST_CASE("the group of a tied parameter is that of the one to which it is tied") {
    test::on_ranks([](ProcessGroup& group) {
        TiedAndIgnored model;
        ShardedOptimizer sharded(group, model, dptk::SGD<float>({.lr = 1}),
                                 {.parameters_to_ignore = {"ignored"}});
        const std::vector<float> before = model.value;
        for (const bool is_frozen : {true, false}) {
            const std::size_t tied[] = {1};
            sharded.set_group(tied, {.is_frozen = is_frozen});
            sharded.synchronize();
            sharded.step();
            CHECK((model.value == before) == is_frozen);
        }
    });
}

TEST_CASE("the state of a parameter of many pieces is whole") {
    with_and_without_shared_memory([](ProcessGroup& group) {
        for (const ShardedOptimizerOptions& options : all_options) {
            std::vector<float> value(100'003), gradient(100'003);
            for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 1000);
            const dptk::SGD<float> sgd({.lr = 1, .momentum = 0.5});
            ShardedOptimizer sharded(group, value, gradient, sgd, {}, options);
            sharded.synchronize();
            sharded.step();
            auto state = sharded.state();
            if (group.rank() == 0) {
                REQUIRE(state.size() == 1);
                CHECK(state[0].arrays.at(0) == gradient);  // the momentum of the first step
            } else {
                state = {{.steps = 1, .arrays = {gradient}}};
            }
            ShardedOptimizer next(group, value, gradient, sgd, {}, options);
            next.load_state(state);
            std::ranges::fill(gradient, 0.0F);
            const std::vector<float> before = value;
            next.synchronize();
            next.step();
            for (std::size_t i = 0; i < value.size(); i += 777)
                CHECK(value[i] == before[i] - 0.5F * static_cast<float>(i % 1000));
        }
    });
}

TEST_CASE("a state that all ranks saved can be loaded on a subgroup") {
    test::on_ranks([](ProcessGroup& group) {
        const dptk::Adam<double> adam({.lr = 0.01});
        test::SmallNet<double> net(0);
        std::vector<dptk::OptimizerState<double>> saved;
        {
            ShardedOptimizer sharded(group, net.values, net.gradients, adam);
            for (int step = 0; step < 5; ++step) {
                step_once(sharded, net, group.rank(), step, Ready::at_synchronize);
                sharded.step();
            }
            for (int root = 0; root < group.size(); ++root) {
                auto state = sharded.state(root);
                if (group.rank() == root) saved = std::move(state);
            }
        }
        std::vector<int> ranks;
        for (int size = 1; size <= std::min(group.size(), 3); ++size) {
            ranks.push_back(size - 1);
            ProcessGroup part = group.subgroup(ranks);
            if (!part.is_member()) continue;
            test::SmallNet<double> copy = net, alone = net;
            ShardedOptimizer sharded(part, copy.values, copy.gradients, adam);
            sharded.load_state(saved);
            dptk::Adam<double> whole = adam;
            for (std::size_t i = 0; i < 4; ++i) whole.set_state(i, saved[i]);
            for (int step = 5; step < 10; ++step) {
                step_once(sharded, copy, part.rank(), step, Ready::at_synchronize);
                sharded.step();
                sharded_step_alone(whole, alone, part.size(), step);
            }
            CHECK(test::largest_difference(copy.values, alone.values) < 1e-10);
        }
    });
}

TEST_CASE(
    "sharded gradients are clipped as in one process, and one that is not finite is reported on all ranks") {
    with_and_without_shared_memory([](ProcessGroup& group) {
        for (const ShardedOptimizerOptions& options : all_options) {
            std::vector<double> value(100), gradient(100);
            ShardedOptimizer sharded(group, value, gradient, dptk::SGD<double>({.lr = 1}), {}, options);
            std::ranges::fill(gradient, static_cast<double>(group.rank() + 1));
            sharded.synchronize();
            const double mean = (group.size() + 1) / 2.0;
            CHECK(sharded.gradient_norm() == doctest::Approx(10 * mean));
            CHECK(sharded.clip_grad_norm(5) == doctest::Approx(10 * mean));
            CHECK(sharded.clip_grad_norm(50) == doctest::Approx(5));
            CHECK(sharded.clip_grad_norm(4) == doctest::Approx(5));
            sharded.step();
            CHECK(value[99] == doctest::Approx(-0.4));
            if (options.parameters_as_bucket_view) CHECK(sharded.gradient_norm() == doctest::Approx(4));
            std::ranges::fill(gradient, static_cast<double>(group.rank() + 1));
            sharded.synchronize();
            static_cast<void>(sharded.clip_grad_norm(5));
            sharded.clip_grad_value(0.25);
            sharded.step();
            CHECK(value[99] == doctest::Approx(-0.65));
            if (group.rank() == 0) gradient[3] = std::numeric_limits<double>::infinity();
            sharded.synchronize();
            CHECK_FALSE(sharded.unscale(2));
            std::ranges::fill(gradient, static_cast<double>(group.rank() + 1));
            sharded.synchronize();
            static_cast<void>(sharded.clip_grad_norm(5));
            CHECK(sharded.unscale(2));
            sharded.step();
            CHECK(value[99] == doctest::Approx(-0.9));
        }
    });
}

TEST_CASE("what clips a step that is then left out does not change later ones") {
    with_and_without_shared_memory([](ProcessGroup& group) {
        for (const ShardedOptimizerOptions& options : all_options) {
            std::vector<double> value(100), gradient(100);
            ShardedOptimizer sharded(group, value, gradient, dptk::SGD<double>({.lr = 1}), {}, options);
            if (group.rank() == 0) gradient[3] = std::numeric_limits<double>::infinity();
            sharded.synchronize();
            CHECK(std::isinf(sharded.clip_grad_norm(1)));
            std::ranges::fill(gradient, 1);
            sharded.synchronize();
            CHECK(sharded.clip_grad_norm(1) == doctest::Approx(10));
            sharded.synchronize();
            CHECK(sharded.unscale(2));
            CHECK(sharded.clip_grad_norm(100) == doctest::Approx(5));
            sharded.step();
            CHECK(value[99] == doctest::Approx(-0.5));
        }
    });
}

TEST_CASE("parameters of another type than the optimizer's are an error on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<float> value(3), gradient(3);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { const ShardedOptimizer sharded(group, value, gradient, dptk::Adam<double>()); },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameter [0] is of f32, but the optimizer is of f64"));
    });
}

TEST_CASE("the copies of each rank's part are on another host, unless most ranks are on one") {
    const auto check = [](const std::vector<std::string>& hosts, bool expects_others) {
        const std::vector<int> keepers = dptk::detail::keepers_of(hosts);
        REQUIRE(keepers.size() == hosts.size());
        std::set<int> all(keepers.begin(), keepers.end());
        CHECK(all.size() == hosts.size());
        for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
            CAPTURE(rank);
            const auto keeper = static_cast<std::size_t>(keepers[rank]);
            CHECK((hosts.size() == 1 || keeper != rank));
            if (expects_others) CHECK(hosts[keeper] != hosts[rank]);
        }
    };
    check({"a"}, false);
    check({"a", "a", "a"}, false);
    check({"a", "a", "a", "b"}, false);
    check({"a", "b"}, true);
    check({"a", "a", "b", "b"}, true);
    check({"b", "a", "a", "b"}, true);
    check({"a", "b", "c", "b", "a", "b"}, true);
    check({"a", "b", "c"}, true);
    check({"c", "a", "b", "a", "c"}, true);
}
