// Gradients of another element type than their values, compared with averages in double.
#include <doctest/doctest.h>
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/ddp/hooks/allreduce.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>
#include <dptk/ddp/join.hpp>
#include <dptk/ddp/loss_scaler.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::bfloat16;
using dptk::float16;
using dptk::ProcessGroup;
using dptk::Ready;

/// The largest relative error of one rounding to G.
template <class G>
constexpr double rounding = std::is_same_v<G, bfloat16>  ? 0x1p-8
                            : std::is_same_v<G, float16> ? 0x1p-11
                                                         : 0x1p-24;

template <class T>
double number(T element) {
    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<double>(element);
    } else {
        return static_cast<double>(static_cast<float>(element));
    }
}

template <class T>
T rounded(double value) {
    if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}

/// A model with values of type V and gradients of type G. Gradients are positive, so that a sum is not
/// smaller than its terms.
template <class V, class G>
struct MixedModel {
    std::vector<std::vector<V>> values = {std::vector<V>(7, V{1}), std::vector<V>(300, V{2}),
                                          std::vector<V>(1, V{3})};
    std::vector<std::vector<G>> gradients = {std::vector<G>(7), std::vector<G>(300), std::vector<G>(1)};

    static double exact(int rank, int step, std::size_t p, std::size_t i) {
        return number(rounded<G>(1.0 + 0.9 * std::sin(1.3 * rank + 0.7 * step + 3.1 * static_cast<double>(p) +
                                                      0.37 * static_cast<double>(i))));
    }

    void fill(int rank, int step) {
        for (std::size_t p = 0; p < gradients.size(); ++p)
            for (std::size_t i = 0; i < gradients[p].size(); ++i)
                gradients[p][i] = rounded<G>(exact(rank, step, p, i));
    }

    /// Fills the gradients with NaN, for a rank whose gradients must not be read.
    void spoil() {
        for (auto& gradient : gradients)
            for (G& element : gradient) element = rounded<G>(std::nan(""));
    }
};

/// Returns the average of an element over the ranks, with these weights.
template <class Model>
double oracle(const std::vector<double>& weights, int step, std::size_t p, std::size_t i) {
    double sum = 0, all = 0;
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        all += weights[rank];
        if (weights[rank] > 0) sum += weights[rank] * Model::exact(static_cast<int>(rank), step, p, i);
    }
    return all > 0 ? sum / all : 0;
}

/// Returns the largest error of the averages, as a multiple of one rounding to G.
template <class G, class Model, class Gradients>
double largest_error(const Gradients& averages, const std::vector<double>& weights, int step,
                     double factor = 1) {
    double largest = 0;
    for (std::size_t p = 0; p < averages.size(); ++p) {
        for (std::size_t i = 0; i < averages[p].size(); ++i) {
            const double expected = factor * oracle<Model>(weights, step, p, i);
            const double error = std::abs(number(averages[p][i]) - expected);
            largest = std::max(largest,
                               std::isnan(error) ? 1e9 : error / (rounding<G> * std::abs(expected) + 1e-30));
        }
    }
    return largest;
}

/// Sample counts of the ranks: uneven, and none on the last of several ranks.
std::vector<double> uneven_counts(int ranks) {
    std::vector<double> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(ranks > 1 && rank == ranks - 1 ? 0 : rank + 1);
    return counts;
}

/// Calls fn.operator()<V, G>() with each pair of types.
template <class Fn>
void for_each_pair(Fn&& fn) {
    fn.template operator()<float, bfloat16>();
    fn.template operator()<float, float16>();
    fn.template operator()<double, float>();
}

// A sum of f32 numbers in f32 rounds in each addition; sums of 16-bit numbers round once. A weight is applied
// before the sum, which adds the rounding of each rank's elements.
template <class G>
constexpr double once = std::is_same_v<G, float> ? 8 : 1.001;
template <class G>
constexpr double weighted = std::is_same_v<G, float> ? 8 : 2.01;

}  // namespace

TEST_CASE("gradients of another type than their values are averaged in their own type") {
    test::on_ranks([](ProcessGroup& group) {
        for_each_pair([&]<class V, class G>() {
            using Model = MixedModel<V, G>;
            for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
                Model model;
                if (group.rank() > 0) model.values[1][5] = V{9};
                dptk::DistributedDataParallel ddp(group, model.values, model.gradients,
                                                  {.bucket_cap_mb = test::one_byte, .ready = ready});
                CHECK(model.values[1][5] == V{2});
                const auto counts = uneven_counts(group.size());
                const std::vector<double> equal(counts.size(), 1);
                for (int step = 0; step < 4; ++step) {
                    const bool has_counts = step % 2 == 1;
                    const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]);
                    model.fill(group.rank(), step);
                    if (has_counts && own == 0) model.spoil();
                    has_counts ? ddp.begin_step(own) : ddp.begin_step();
                    for (const std::size_t i : {2U, 1U, 0U})
                        if (ready == Ready::marked) ddp.mark_ready(i);
                    ddp.synchronize();
                    CHECK(largest_error<G, Model>(model.gradients, has_counts ? counts : equal, step) <=
                          (has_counts ? weighted<G> : once<G>));
                }
                CHECK(ddp.parameters()[1].dtype == dptk::dtype_of<V>);
                CHECK(ddp.parameters()[1].gradients<G>().data() == model.gradients[1].data());
                CHECK(ddp.parameters()[1].values<V>().data() == model.values[1].data());
                CHECK_THROWS_WITH_AS(static_cast<void>(ddp.parameters()[1].gradients<V>()),
                                     doctest::Contains("the gradient of parameter [1] is of"),
                                     dptk::ArgumentError);
            }
        });
    });
}

TEST_CASE("reduce_in_f32 sends and averages 16-bit gradients in f32, and leaves them unchanged") {
    test::on_ranks([](ProcessGroup& group) {
        for_each_pair([&]<class V, class G>() {
            using Model = MixedModel<V, G>;
            for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
                Model model, before;
                dptk::DistributedDataParallel ddp(group, model.values, model.gradients,
                                                  {.ready = ready, .reduce_in_f32 = true});
                const auto counts = uneven_counts(group.size());
                for (int step = 0; step < 3; ++step) {
                    model.fill(group.rank(), step);
                    before.fill(group.rank(), step);
                    ddp.begin_step(static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]));
                    for (const auto& gradient : model.gradients)
                        if (ready == Ready::marked) ddp.mark_ready(gradient);
                    ddp.synchronize();
                    std::vector<std::vector<float>> averages;
                    for (const dptk::ParameterRef& parameter : ddp.parameters()) {
                        const auto average = parameter.gradients<float>();
                        averages.emplace_back(average.begin(), average.end());
                    }
                    CHECK(largest_error<float, Model>(averages, counts, step) <= 8);
                    const double norm = ddp.clip_grad_norm(1e9).value();
                    double squares = 0;
                    for (const auto& average : averages)
                        for (const float element : average) squares += number(element) * number(element);
                    CHECK(norm == doctest::Approx(std::sqrt(squares)));
                    CHECK(ddp.unscale(2));
                    CHECK(ddp.parameters()[1].gradients<float>()[3] == averages[1][3] / 2);
                    if (!std::is_same_v<G, float>) CHECK(model.gradients == before.gradients);
                }
            }
        });
    });
}

TEST_CASE("accumulation, clipping and loss scaling work on gradients of another type") {
    test::on_ranks([](ProcessGroup& group) {
        for_each_pair([&]<class V, class G>() {
            using Model = MixedModel<V, G>;
            Model model;
            dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
            const std::vector<double> equal(static_cast<std::size_t>(group.size()), 1);
            // Two micro-batches with the same gradients have their average.
            model.fill(group.rank(), 0);
            ddp.accumulate(2);
            CHECK(number(model.gradients[1][0]) == 0);
            model.fill(group.rank(), 0);
            ddp.synchronize(3);
            CHECK(largest_error<G, Model>(model.gradients, equal, 0) <= weighted<G>);

            dptk::LossScaler scaler({.init_scale = 8});
            model.fill(group.rank(), 1);
            ddp.synchronize();
            CHECK(scaler.unscale(ddp));
            CHECK(largest_error<G, Model>(model.gradients, equal, 1, 1.0 / 8) <= once<G>);
            ddp.clip_grad_value(0.01);
            CHECK(number(model.gradients[1][0]) == number(rounded<G>(0.01)));
            model.fill(group.rank(), 2);
            if (group.rank() == group.size() - 1) model.gradients[1][7] = rounded<G>(INFINITY);
            ddp.synchronize();
            CHECK_FALSE(scaler.unscale(ddp));
        });
    });
}

TEST_CASE("optimizers step values with gradients of another type") {
    test::on_ranks([](ProcessGroup& group) {
        for_each_pair([&]<class V, class G>() {
            using Model = MixedModel<V, G>;
            const auto counts = uneven_counts(group.size());
            const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]);
            Model whole, sharded_model, fused_model;
            dptk::DistributedDataParallel ddp(group, whole.values, whole.gradients);
            dptk::AdamW<V> adam({.lr = 0.1, .weight_decay = 0.01});
            using Sharded = dptk::ShardedOptimizer<dptk::AdamW<V>>;
            Sharded sharded(group, sharded_model.values, sharded_model.gradients,
                            dptk::AdamW<V>({.lr = 0.1, .weight_decay = 0.01}));
            Sharded fused(group, fused_model.values, fused_model.gradients,
                          dptk::AdamW<V>({.lr = 0.1, .weight_decay = 0.01}), {},
                          {.fused_step = dptk::FusedStep::yes});
            for (int step = 0; step < 3; ++step) {
                for (Model* model : {&whole, &sharded_model, &fused_model}) model->fill(group.rank(), step);
                ddp.synchronize(own);
                sharded.synchronize(own);
                fused.synchronize(own);
                const double norm = ddp.clip_grad_norm(1e9).value();
                CHECK(sharded.clip_grad_norm(1e9) == doctest::Approx(norm));
                CHECK(sharded.unscale(1));
                adam.step(ddp.parameters());
                sharded.step();
                fused.step();
                CHECK(test::largest_difference(whole.values, sharded_model.values) < 2e-3);
                CHECK(test::largest_difference(whole.values, fused_model.values) < 2e-3);
            }
            CHECK(whole.values[1][0] != V{2});
        });
    });
}

TEST_CASE("reproducible training, Join and hooks average gradients of another type") {
    test::on_ranks([](ProcessGroup& group) {
        for_each_pair([&]<class V, class G>() {
            using Model = MixedModel<V, G>;
            const std::vector<double> equal(static_cast<std::size_t>(group.size()), 1);
            Model model;
            dptk::ReproducibleDataParallel reproducible(group, model.values, model.gradients,
                                                        static_cast<std::size_t>(group.size()));
            model.fill(group.rank(), 0);
            reproducible.add_shard(4);
            reproducible.synchronize();
            CHECK(largest_error<G, Model>(model.gradients, equal, 0) <= once<G>);

            dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
            dptk::Join join(group);
            join.add(ddp);
            for (int step = 0; step < group.rank() + 1; ++step) {
                join.begin_step();
                model.fill(group.rank(), step);
                ddp.synchronize(1);
                std::vector<double> present = equal;
                for (int rank = 0; rank < step; ++rank) present[static_cast<std::size_t>(rank)] = 0;
                CHECK(largest_error<G, Model>(model.gradients, present, step) <= weighted<G>);
            }
            join.finish();

            ddp.set_comm_hook(dptk::hooks::allreduce());
            model.fill(group.rank(), 5);
            ddp.synchronize();
            CHECK(largest_error<G, Model>(model.gradients, equal, 5) <= weighted<G>);
            ddp.set_comm_hook(dptk::hooks::powersgd({.start_step = 0}));
            model.fill(group.rank(), 6);
            ddp.synchronize();
            CHECK(number(model.gradients[0][0]) ==
                  doctest::Approx(oracle<Model>(equal, 6, 0, 0)).epsilon(0.02));
        });
    });
}

TEST_CASE("replicas in one process average gradients of another type") {
    if (test::is_launched()) return;
    for_each_pair([&]<class V, class G>() {
        using Model = MixedModel<V, G>;
        std::vector<Model> models(3);
        std::vector<dptk::ParameterSource> sources;
        for (Model& model : models) sources.emplace_back(model.values, model.gradients);
        dptk::DataParallel replicas(std::move(sources));
        const std::vector<std::size_t> batch = {0, 1, 2, 3, 4, 5};
        replicas.step(batch, [&](std::size_t replica, std::span<const std::size_t>) {
            models[replica].fill(static_cast<int>(replica), 0);
        });
        CHECK(largest_error<G, Model>(models[0].gradients, {1, 1, 1}, 0) <= weighted<G>);
    });
}

TEST_CASE("gradients whose types differ between the ranks are an error that names the parameter") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<std::vector<float>> values = {{1, 2}}, gradients = values;
        std::vector<std::vector<bfloat16>> narrow = {std::vector<bfloat16>(2)};
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text,
            [&] {
                if (group.rank() == 1) {
                    dptk::DistributedDataParallel ddp(group, values, narrow);
                } else {
                    dptk::DistributedDataParallel ddp(group, values, gradients);
                }
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameter [0] of f32 [2] with gradients of bf16"));
    });
}

TEST_CASE("options and types that cannot be combined are errors") {
    test::on_ranks([](ProcessGroup& group) {
        MixedModel<float, bfloat16> model;
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                dptk::DistributedDataParallel ddp(group, model.values, model.gradients,
                                                  {.gradient_as_bucket_view = true, .reduce_in_f32 = true});
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "reduce_in_f32 and gradient_as_bucket_view exclude each other"));
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] {
                dptk::ShardedOptimizer sharded(group, model.values, model.gradients,
                                               dptk::SGD<float>({.lr = 1}), {.reduce_in_f32 = true});
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "ShardedOptimizer does not support reduce_in_f32"));
        dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
        dptk::SGD<double> wrong({.lr = 1});
        CHECK_THROWS_WITH_AS(wrong.step(ddp.parameters()),
                             doctest::Contains("the value of parameter [0] is of f32: expected f64"),
                             dptk::ArgumentError);
    });
}
