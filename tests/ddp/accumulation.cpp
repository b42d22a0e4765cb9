// Gradient accumulation: no_sync, as in PyTorch, and accumulate, which weights micro-batches by their
// samples.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::Ready;
using Vectors = std::vector<std::vector<float>>;

/// Returns the 0 to 3 samples of micro-batch `number` of rank `rank`.
std::vector<std::size_t> micro_batch(int rank, int number) {
    std::vector<std::size_t> samples;
    for (int i = 0; i < (rank + 2 * number + 1) % 4; ++i)
        samples.push_back(static_cast<std::size_t>(100 * rank + 10 * number + i));
    return samples;
}

constexpr int micro_batches = 4;

template <class T>
test::SmallNet<T> one_process(int ranks) {
    std::vector<std::size_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
        for (int number = 0; number < micro_batches; ++number) {
            const auto samples = micro_batch(rank, number);
            all.insert(all.end(), samples.begin(), samples.end());
        }
    }
    test::SmallNet<T> net(0);
    net.forward_backward(all);
    return net;
}

}  // namespace

TEST_CASE_TEMPLATE("micro-batches of any sizes equal one large batch of one process", T, float, double) {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const test::SmallNet<T> alone = one_process<T>(group.size());
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const bool last_is_the_steps : {true, false}) {
                test::SmallNet<T> net(group.rank());
                DistributedDataParallel ddp(group, net.values, net.gradients,
                                            {.bucket_cap_mb = 1e-5, .ready = ready});
                for (int step = 0; step < 3; ++step) {
                    for (int number = 0; number < micro_batches; ++number) {
                        const auto samples = micro_batch(group.rank(), number);
                        const bool last = number + 1 == micro_batches;
                        if (samples.empty()) {  // the contents of the memory must not count
                            for (auto& gradient : net.gradients)
                                std::ranges::fill(gradient, std::numeric_limits<T>::quiet_NaN());
                        }
                        if (last && last_is_the_steps) {
                            ddp.begin_step(samples.size());
                            net.forward_backward(samples);
                            if (ready == Ready::marked && !samples.empty()) {
                                for (std::size_t i = 4; i-- > 0;) ddp.mark_ready(i);
                            }
                        } else {
                            const auto here = ddp.no_sync();
                            net.forward_backward(samples);
                            if (ready == Ready::marked) ddp.mark_ready(2);  // does nothing in no_sync
                            ddp.accumulate(samples.size());
                            CHECK(net.gradients[0][0] == 0);
                        }
                    }
                    ddp.synchronize();
                    CHECK(test::largest_difference(net.gradients, alone.gradients) <
                          64 * static_cast<double>(std::numeric_limits<T>::epsilon()));
                }
            }
        }
    });
}

TEST_CASE("no_sync: the next step averages the plain sums") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            Vectors values = {{0}, {0}}, gradients = {{0}, {0}};
            DistributedDataParallel ddp(group, values, gradients, {.ready = ready});
            const auto backward = [&](float gradient) {
                for (auto& each : gradients) each[0] += gradient;
                if (ready == Ready::marked) ddp.mark_ready(1), ddp.mark_ready(0);
            };
            const auto rank = static_cast<float>(group.rank());
            for (int step = 0; step < 2; ++step) {
                gradients = {{0}, {0}};
                {
                    const auto here = ddp.no_sync();
                    for (const float gradient : {1.0F, 2.0F}) {
                        ddp.begin_step();
                        backward(gradient + rank);
                        ddp.synchronize();
                    }
                    CHECK(gradients[0][0] == 3 + 2 * rank);  // this rank's own
                }
                ddp.begin_step();
                backward(4 + rank);
                ddp.synchronize();
                const float mean = static_cast<float>(group.size() - 1) / 2;
                CHECK(gradients[0][0] == doctest::Approx(7 + 3 * mean));
                CHECK(gradients[1][0] == gradients[0][0]);
            }
        }
    });
}

TEST_CASE("mistakes of accumulation are reported on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}}, gradients = {{1}};
        DistributedDataParallel ddp(group, values, gradients, {.ready = Ready::marked});
        std::string text;
        {
            const auto here = ddp.no_sync();
            CHECK(test::throws<dptk::ArgumentError>(text, [&] { ddp.begin_step(3); }));
            CHECK(test::contains(text, "a sample count was given inside no_sync"));
        }
        ddp.begin_step();
        CHECK_THROWS_AS(static_cast<void>(ddp.no_sync()), dptk::ArgumentError);
        ddp.mark_ready(0);
        ddp.synchronize();

        const bool odd = group.rank() == group.size() - 1;
        ddp.begin_step(1);
        if (odd) ddp.accumulate(1);
        ddp.mark_ready(0);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "accumulate() was called during a step"));

        ddp.accumulate(2);
        ddp.mark_ready(0);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "gradient [0] was marked after accumulate() without begin_step(n)"));

        if (group.size() > 1) {
            if (odd) ddp.accumulate(2);
            if (!odd) ddp.mark_ready(0);
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { ddp.synchronize(); }, test::Agreed::yes));
            CHECK(test::contains(text, "has accumulated 2 samples"));
        }
        gradients[0][0] = 7;
        ddp.mark_ready(0);
        ddp.synchronize();
        CHECK(gradients[0][0] == 7);
    });
}

TEST_CASE("16-bit gradients accumulate without loss") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<dptk::bfloat16> value(1), gradient(1);
        DistributedDataParallel ddp(group, value, gradient);
        for (int i = 0; i < 1000; ++i) {  // a sum in bf16 would stay at 256
            gradient[0] = dptk::bfloat16(1.0F);
            ddp.accumulate(1);
        }
        ddp.synchronize();
        CHECK(static_cast<float>(gradient[0]) == 1.0F);
    });
}
