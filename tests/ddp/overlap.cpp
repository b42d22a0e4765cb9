// When buckets travel: while backward goes on, where that leaves it its processor.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks_on_hosts.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::Ready;
using Vectors = std::vector<std::vector<float>>;

/// A step whose first bucket is full before the rest of backward. Returns its times.
dptk::StepTimes step_of_two_buckets(dptk::ProcessGroup& group, bool counts_samples) {
    Vectors values = {{0, 0}, {0, 0, 0}};
    Vectors gradients = values;
    DistributedDataParallel ddp(group, values, gradients,
                                {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
    for (int step = 0; step < 3; ++step) {
        const auto rank = static_cast<float>(group.rank());
        for (auto& gradient : gradients) gradient.assign(gradient.size(), rank);
        if (counts_samples) ddp.begin_step(4);
        ddp.mark_ready(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ddp.mark_ready(0);
        ddp.synchronize();
        const float mean = static_cast<float>(group.size() - 1) / 2;
        CHECK(gradients == Vectors{{mean, mean}, {mean, mean, mean}});
    }
    return ddp.statistics().all_steps;
}

}  // namespace

TEST_CASE("ranks that share memory overlap where each has a second processor") {
    for (const int ranks : {2, 3, 4}) {
        for (const bool counts : {false, true}) {
            const std::vector<std::string> hosts(static_cast<std::size_t>(ranks), "a");
            for (const bool spare : {false, true}) {
                CAPTURE(ranks);
                CAPTURE(counts);
                const auto check = [&](dptk::ProcessGroup& group) {
                    const dptk::StepTimes times = step_of_two_buckets(group, counts);
                    CHECK(times.communication > 0);
                    if (spare) CHECK(times.overlapped > 0);
                    if (!spare) CHECK(times.overlapped == 0);
                };
                test::launch_on_hosts(hosts, check, spare ? 2 * ranks : 2 * ranks - 1);
            }
        }
    }
}

TEST_CASE("between hosts buckets travel beside backward, whatever the processors") {
    test::launch_on_hosts(
        {"a", "a", "b", "b"},
        [](dptk::ProcessGroup& group) { CHECK(step_of_two_buckets(group, true).overlapped > 0); }, 1);
}

TEST_CASE("buffers and hooks where nothing overlaps") {
    test::launch_on_hosts(
        {"a", "a"},
        [](dptk::ProcessGroup& group) {
            const auto rank = static_cast<float>(group.rank());
            Vectors values = {{0, 0}}, gradients = {{rank, rank}};
            std::vector<float> buffer = {rank};
            DistributedDataParallel ddp(
                group, values, gradients,
                {.ready = Ready::marked, .buffers = dptk::BufferSource(std::tie(buffer))});
            ddp.set_comm_hook(dptk::comm_hook([](dptk::ProcessGroup& ranks, dptk::HookBucket& bucket) {
                ranks.channel().run(
                    {.verb = dptk::Verb::all_reduce, .input = bucket.elements, .output = bucket.elements});
            }));
            buffer[0] = rank + 1;
            ddp.begin_step();
            CHECK(buffer[0] == 1);
            ddp.mark_ready(0);
            ddp.synchronize();
            CHECK(gradients == Vectors{{0.5F, 0.5F}});
        },
        2);
}
