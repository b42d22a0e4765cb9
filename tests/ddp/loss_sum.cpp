// LossReduction::sum: gradients that are sums over samples give the sum over all ranks' samples.
#include <doctest/doctest.h>
#include <dptk/ddp/hooks/allreduce.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/join.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::LossReduction;
using dptk::ProcessGroup;
using dptk::Ready;
using SumNet = test::SmallNet<double>;

/// Returns the samples of a rank in a step: of different numbers, and none on the last of several ranks.
[[nodiscard]] std::vector<std::size_t> samples_of(int rank, int ranks) {
    std::vector<std::size_t> samples;
    const int count = ranks > 1 && rank == ranks - 1 ? 0 : rank + 1;
    for (int i = 0; i < count; ++i) samples.push_back(static_cast<std::size_t>(10 * rank + i));
    return samples;
}

/// Computes gradients that are sums over the samples.
void compute_sums(SumNet& net, const std::vector<std::size_t>& samples) {
    for (auto& gradient : net.gradients) std::ranges::fill(gradient, 0.0);
    net.forward_backward(samples);
    for (auto& gradient : net.gradients)
        for (double& element : gradient) element *= static_cast<double>(samples.size());
}

/// Returns a network with the sums over the samples of all ranks.
[[nodiscard]] SumNet sums_alone(int ranks) {
    SumNet net(0);
    std::vector<std::size_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
        for (const std::size_t sample : samples_of(rank, ranks)) all.push_back(sample);
    }
    compute_sums(net, all);
    return net;
}

}  // namespace

TEST_CASE("sums over uneven samples equal those of one process, with and without counts, clipped or not") {
    test::on_ranks([](ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const bool counts : {false, true}) {
                SumNet net(0), whole = sums_alone(group.size());
                dptk::DistributedDataParallel ddp(
                    group, net.values, net.gradients,
                    {.bucket_cap_mb = test::one_byte, .ready = ready, .loss_reduction = LossReduction::sum});
                for (int step = 0; step < 3; ++step) {
                    const auto samples = samples_of(group.rank(), group.size());
                    compute_sums(net, samples);
                    if (counts) ddp.begin_step(samples.size());
                    if (ready == Ready::marked)
                        for (const std::size_t i : {3U, 2U, 1U, 0U}) ddp.mark_ready(i);
                    ddp.synchronize();
                    CHECK(test::largest_difference(net.gradients, whole.gradients) < 1e-12);
                }
                const double norm = ddp.clip_grad_norm(0.1).value();
                const auto whole_parameters = dptk::ParameterSource(whole.values, whole.gradients).collect();
                CHECK(norm == doctest::Approx(dptk::clip_grad_norm(whole_parameters, 0.1)));
                CHECK(test::largest_difference(net.gradients, whole.gradients) < 1e-12);
            }
        }
    });
}

TEST_CASE("sums of micro-batches equal the sum of one batch") {
    test::on_ranks([](ProcessGroup& group) {
        SumNet net(0);
        const SumNet whole = sums_alone(group.size());
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                          {.loss_reduction = LossReduction::sum});
        for (int step = 0; step < 2; ++step) {
            for (const std::size_t sample : samples_of(group.rank(), group.size())) {
                compute_sums(net, {sample});
                ddp.accumulate(1);
            }
            ddp.accumulate(0);
            ddp.synchronize();
            CHECK(test::largest_difference(net.gradients, whole.gradients) < 1e-12);
        }
    });
}

TEST_CASE("hooks sum, and know the rank's weight") {
    test::on_ranks([](ProcessGroup& group) {
        const SumNet whole = sums_alone(group.size());
        double weight = -1;
        const auto own = dptk::comm_hook([&](ProcessGroup& ranks, dptk::HookBucket& bucket) {
            weight = bucket.weight;
            ranks.all_reduce(std::span(static_cast<double*>(bucket.elements.data), bucket.elements.count));
        });
        const std::pair<std::shared_ptr<dptk::CommHook>, double> hooks[] = {
            {own, 1e-12}, {dptk::hooks::allreduce(), 1e-12}, {dptk::hooks::bf16_compress(), 0.2}};
        for (const auto& [hook, tolerance] : hooks) {
            SumNet net(0);
            dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                              {.loss_reduction = LossReduction::sum});
            ddp.set_comm_hook(hook);
            const auto samples = samples_of(group.rank(), group.size());
            compute_sums(net, samples);
            ddp.synchronize(samples.size());
            CHECK(test::largest_difference(net.gradients, whole.gradients) < tolerance);
        }
        CHECK(weight == (samples_of(group.rank(), group.size()).empty() ? 0 : 1.0 / group.size()));
    });
}

TEST_CASE("a sharded optimizer steps by sums") {
    test::on_ranks([](ProcessGroup& group) {
        for (const bool fused : {false, true}) {
            SumNet net(0), whole = sums_alone(group.size());
            dptk::SGD<double> sgd({.lr = 0.1});
            for (std::size_t i = 0; i < 4; ++i) sgd.step(i, std::span(whole.values[i]), whole.gradients[i]);
            dptk::ShardedOptimizer sharded(
                group, net.values, net.gradients, dptk::SGD<double>({.lr = 0.1}),
                {.loss_reduction = LossReduction::sum},
                {.fused_step = fused ? dptk::FusedStep::yes : dptk::FusedStep::no});
            const auto samples = samples_of(group.rank(), group.size());
            compute_sums(net, samples);
            sharded.synchronize(samples.size());
            sharded.step();
            CHECK(test::largest_difference(net.values, whole.values) < 1e-12);
        }
    });
}

TEST_CASE("ranks that have run out of batches add nothing to a sum") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> value = {0}, gradient = {0};
        dptk::DistributedDataParallel ddp(group, value, gradient, {.loss_reduction = LossReduction::sum});
        dptk::Join join(group);
        join.add(ddp);
        for (int batch = 0; batch <= group.rank(); ++batch) {
            join.begin_step();
            gradient[0] = 1;
            ddp.synchronize();
            CHECK(gradient[0] == group.size() - batch);
        }
        join.finish();
    });
}

TEST_CASE("ranks whose losses are reduced differently are a MismatchError") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        SumNet net(0);
        const LossReduction own = group.rank() == 0 ? LossReduction::sum : LossReduction::mean;
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text,
            [&] { dptk::DistributedDataParallel(group, net.values, net.gradients, {.loss_reduction = own}); },
            test::Agreed::yes));
        CHECK_MESSAGE(test::contains(text, "LossReduction::sum"), text);
    });
}
