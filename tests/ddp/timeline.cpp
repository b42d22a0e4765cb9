// The results of statistics(), and the trace file that DPTK_TRACE requests.
#include <doctest/doctest.h>
#include <unistd.h>
#include <dptk/core/trace.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;
using dptk::Ready;

/// A complete event of the trace file. Times are in microseconds.
struct TracedSpan {
    std::string name;
    double begin = 0;
    double end = 0;
};

/// The spans of each rank and lane.
using TracedSpans = std::map<std::pair<int, int>, std::vector<TracedSpan>>;

TracedSpans read_trace(const std::string& path) {
    TracedSpans spans;
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    CHECK(line == R"({"displayTimeUnit": "ms", "traceEvents": [)");
    while (std::getline(file, line) && line != "]}") {
        char name[100] = {};
        char phase = 0;
        int rank = -1, lane = -1;
        double begin = -1, duration = -1;
        const int found = std::sscanf(
            line.c_str(), R"({"name": "%99[^"]", "ph": "%c", "pid": %d, "tid": %d, "ts": %lf, "dur": %lf})",
            name, &phase, &rank, &lane, &begin, &duration);
        REQUIRE(found >= 3);
        REQUIRE((phase == 'X' || phase == 'M'));
        if (phase == 'M') continue;
        REQUIRE(found == 6);
        CHECK(begin >= 0);
        CHECK(duration >= 0);
        spans[{rank, lane}].push_back({name, begin, begin + duration});
    }
    CHECK(line == "]}");
    return spans;
}

/// Returns whether spans are nested: of any two, one contains the other, or ends before the other begins.
bool nest(std::vector<TracedSpan> spans) {
    std::ranges::sort(spans, [](const TracedSpan& a, const TracedSpan& b) {
        return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
    });
    constexpr double rounding = 0.002;
    std::vector<double> open;
    for (const TracedSpan& span : spans) {
        while (!open.empty() && open.back() <= span.begin + rounding) open.pop_back();
        if (!open.empty() && span.end > open.back() + rounding) return false;
        open.push_back(span.end);
    }
    return true;
}

}  // namespace

TEST_CASE("statistics: buckets, bytes, order of arrival, and consistent times") {
    test::on_ranks([](ProcessGroup& group) {
        test::SmallNet<float> net(0);
        DistributedDataParallel ddp(group, net.values, net.gradients,
                                    {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        const std::vector<std::size_t> arrival = {3, 1, 2, 0};
        for (int step = 0; step < 3; ++step) {
            ddp.begin_step();
            for (const std::size_t i : arrival) {
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                ddp.mark_ready(i);
            }
            ddp.synchronize();
        }
        const dptk::DDPStatistics statistics = ddp.statistics();
        using Sizes = std::vector<std::size_t>;
        CHECK(statistics.first_bucket_bytes == Sizes{8, 40, 20, 60});
        CHECK(statistics.bucket_bytes == Sizes{8, 20, 40, 60});
        CHECK(statistics.arrival_order == arrival);
        CHECK(statistics.steps == 3);
        CHECK(statistics.bytes == 3 * 4 * 64U);  // each gradient is padded to 64 bytes
        CHECK(statistics.last_step.compute >= 0.008);
        CHECK(statistics.all_steps.compute >= 3 * 0.008);
        CHECK(statistics.all_steps.communication > 0);
        CHECK(statistics.all_steps.overlapped <= statistics.all_steps.communication);
        CHECK(statistics.last_step.communication <= statistics.all_steps.communication);
    });
}

TEST_CASE("statistics: a step that begins in synchronize() has computed since the previous step") {
    test::on_ranks([](ProcessGroup& group) {
        test::SmallNet<float> net(0);
        DistributedDataParallel ddp(group, net.values, net.gradients);
        for (int step = 0; step < 3; ++step) {
            std::this_thread::sleep_for(std::chrono::milliseconds(4));
            ddp.synchronize(1);
            CHECK(ddp.statistics().last_step.compute >= 0.004);
        }
        CHECK(ddp.statistics().all_steps.compute >= 3 * 0.004);
    });
}

TEST_CASE("DPTK_TRACE: one file with nested spans of all ranks, whose sums equal the statistics") {
    if (test::is_launched()) return;
    const std::string path =
        std::filesystem::temp_directory_path() / dptk::detail::text("dptk_trace_", ::getpid(), ".json");
    ::setenv("DPTK_TRACE", path.c_str(), 1);
    for (const int ranks : {1, 2, 4}) {
        std::vector<dptk::DDPStatistics> statistics(static_cast<std::size_t>(ranks));
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            test::SmallNet<float> net(0);
            DistributedDataParallel ddp(group, net.values, net.gradients,
                                        {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
            for (int step = 0; step < 5; ++step) {
                const dptk::trace::Span span("step");
                {
                    const dptk::trace::Span backward("backward", 7);
                    for (std::size_t i = 4; i-- > 0;) ddp.mark_ready(i);
                }
                ddp.synchronize();
            }
            statistics[static_cast<std::size_t>(group.rank())] = ddp.statistics();
        });
        const TracedSpans spans = read_trace(path);
        CHECK(spans.size() == static_cast<std::size_t>(2 * ranks));
        for (const auto& [place, of_lane] : spans) {
            CHECK(nest(of_lane));
            const auto [rank, lane] = place;
            const auto named = [&, &all = of_lane](const std::string& name) {
                return std::ranges::count(all, name, &TracedSpan::name);
            };
            if (lane == 0) {
                CHECK(named("step") == 5);
                CHECK(named("backward 7") == 5);
                CHECK(named("synchronize") == 5);
                CHECK(named("copy in") == 20);
            } else {
                CHECK(named("bucket 3") == 5);
                double sum = 0;
                for (const TracedSpan& span : of_lane) sum += span.end - span.begin;
                const double told = 1e6 * statistics[static_cast<std::size_t>(rank)].all_steps.communication;
                CHECK(std::abs(sum - told) < 0.1);
            }
        }
        std::filesystem::remove(path);
    }
    ::unsetenv("DPTK_TRACE");
}

TEST_CASE("a trace that cannot be written is logged, and the training continues") {
    if (test::is_launched()) return;
    ::setenv("DPTK_TRACE", "/no/such/folder/trace.json", 1);
    std::string said;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { said += line; });
    dptk::launch_threads(2, [](ProcessGroup& group) {
        std::vector<float> value(1), gradient(1);
        DistributedDataParallel(group, value, gradient).synchronize();
    });
    dptk::set_log_sink({});
    ::unsetenv("DPTK_TRACE");
    CHECK(said == "DPTK_TRACE: /no/such/folder/trace.json cannot be written");
}
