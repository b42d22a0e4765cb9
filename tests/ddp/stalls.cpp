// Reports of stalled steps name the bucket that is waiting, and the ranks that are missing.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

TEST_CASE("a bucket that waits for a rank is named, with that rank") {
    if (test::is_launched()) return;
    using namespace std::chrono_literals;
    std::mutex mutex;
    std::string said;
    dptk::set_log_sink([&](dptk::LogLevel level, int, std::string_view line) {
        const std::lock_guard lock(mutex);
        if (level == dptk::LogLevel::warning) said.append(line).append("\n");
    });
    std::string text;
    const auto run = [] {
        dptk::launch_threads(2,
                             [](dptk::ProcessGroup& group) {
                                 test::SmallNet<float> net(0);
                                 dptk::DistributedDataParallel ddp(
                                     group, net.values, net.gradients,
                                     {.bucket_cap_mb = test::one_byte, .ready = dptk::Ready::marked});
                                 ddp.begin_step();
                                 ddp.mark_ready(3);
                                 if (group.rank() == 1) std::this_thread::sleep_for(2s);
                                 ddp.mark_ready(2);
                                 ddp.mark_ready(1);
                                 ddp.mark_ready(0);
                                 ddp.synchronize();
                             },
                             {.timeout = 500ms});
    };
    CHECK(test::throws<dptk::TimeoutError>(text, run));
    dptk::set_log_sink({});
    CHECK_MESSAGE(test::contains(text, "all_reduce(avg, 16 x f32, bucket 1)"), text);
    CHECK_MESSAGE(test::contains(text, "rank 1"), text);
    CHECK_MESSAGE(test::contains(said, "bucket 1"), said);
    CHECK_MESSAGE(test::contains(said, "rank 1"), said);
}
