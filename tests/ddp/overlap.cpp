// Overlap of buckets with backward: buckets are sent during backward if each rank has a spare processor.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <atomic>
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

/// Waits until another rank has increased `number` to `value`. Returns false after 10 seconds, so that a test
/// fails instead of hanging.
bool reaches(const std::atomic<int>& number, int value) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (number < value && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return number >= value;
}

/// Runs steps whose first bucket is full before the rest of backward. It is full on rank 0 first: the other
/// ranks continue after rank 0's mark has returned. Returns the times of the steps.
dptk::StepTimes steps_of_two_buckets(dptk::ProcessGroup& group, bool counts_samples,
                                     std::atomic<int>& marked) {
    Vectors values = {{0, 0}, {0, 0, 0}};
    Vectors gradients = values;
    DistributedDataParallel ddp(group, values, gradients,
                                {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
    for (int step = 1; step <= 3; ++step) {
        const auto rank = static_cast<float>(group.rank());
        for (auto& gradient : gradients) gradient.assign(gradient.size(), rank);
        if (counts_samples) {
            ddp.begin_step(4);
        } else {
            ddp.begin_step();
        }
        if (group.rank() != 0) CHECK(reaches(marked, step));
        ddp.mark_ready(1);
        if (group.rank() == 0) ++marked;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ddp.mark_ready(0);
        ddp.synchronize();
        const float mean = static_cast<float>(group.size() - 1) / 2;
        CHECK(gradients == Vectors{{mean, mean}, {mean, mean, mean}});
    }
    return ddp.statistics().all_steps;
}

}  // namespace

TEST_CASE("ranks that share memory overlap if each has a second processor") {
    for (const int ranks : {2, 3, 4}) {
        for (const bool spare : {false, true}) {
            CAPTURE(ranks);
            CAPTURE(spare);
            std::atomic<int> marked = 0;
            const std::vector<std::string> hosts(static_cast<std::size_t>(ranks), "a");
            const auto check = [&](dptk::ProcessGroup& group) {
                const dptk::StepTimes times = steps_of_two_buckets(group, false, marked);
                CHECK(times.communication > 0);
                CHECK((times.overlapped > 0) == spare);
            };
            test::launch_on_hosts(hosts, check, spare ? 2 * ranks : 2 * ranks - 1);
        }
    }
}

TEST_CASE("sample counts do not wait for other ranks if nothing overlaps") {
    std::atomic<int> marked = 0;
    const auto check = [&](dptk::ProcessGroup& group) {
        CHECK(steps_of_two_buckets(group, true, marked).overlapped == 0);
    };
    test::launch_on_hosts({"a", "a"}, check, 2);
}

TEST_CASE("between hosts buckets overlap with backward for any number of processors") {
    std::atomic<int> marked = 0;
    const auto check = [&](dptk::ProcessGroup& group) {
        CHECK(steps_of_two_buckets(group, false, marked).overlapped > 0);
    };
    test::launch_on_hosts({"a", "a", "b", "b"}, check, 1);
}

TEST_CASE("a group of some ranks counts all of the job's") {
    const auto check = [&](dptk::ProcessGroup& group) {
        CHECK_FALSE(group.engine().competes_with_compute());
        dptk::ProcessGroup half = group.split(group.rank() / 2);
        CHECK_FALSE(half.engine().competes_with_compute());
    };
    test::launch_on_hosts({"a", "a", "a", "a"}, check, 8);
    const auto check_cpu_budget = [&](dptk::ProcessGroup& group) {
        CHECK(group.engine().competes_with_compute());
        dptk::ProcessGroup half = group.split(group.rank() / 2);
        CHECK(half.engine().competes_with_compute());
    };
    test::launch_on_hosts({"a", "a", "a", "a"}, check_cpu_budget, 4);
}

TEST_CASE("hooks run on a background thread if buckets overlap, and buffers arrive before") {
    for (const bool spare : {false, true}) {
        const auto check = [&](dptk::ProcessGroup& group) {
            const auto rank = static_cast<float>(group.rank());
            Vectors values = {{0, 0}}, gradients = {{rank, rank}};
            std::vector<float> buffer = {rank};
            DistributedDataParallel ddp(
                group, values, gradients,
                {.ready = Ready::marked, .buffers = dptk::BufferSource(std::tie(buffer))});
            std::thread::id thread;
            ddp.set_comm_hook(dptk::comm_hook([&](dptk::ProcessGroup& ranks, dptk::HookBucket& bucket) {
                thread = std::this_thread::get_id();
                ranks.engine().run(
                    {.verb = dptk::Verb::all_reduce, .input = bucket.elements, .output = bucket.elements});
            }));
            buffer[0] = rank + 1;
            ddp.begin_step();
            CHECK(buffer[0] == 1);
            ddp.mark_ready(0);
            ddp.synchronize();
            CHECK(gradients == Vectors{{0.5F, 0.5F}});
            CHECK((thread == std::this_thread::get_id()) == !spare);
        };
        test::launch_on_hosts({"a", "a"}, check, spare ? 4 : 2);
    }
}
