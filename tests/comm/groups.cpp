// Subgroups: their creation, concurrent use of several of them, and rejection of invalid arguments.
#include <doctest/doctest.h>

#include <dptk/comm/detail/device_registry.hpp>
#include <dptk/control/net/host.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

using namespace std::chrono_literals;

namespace {

using dptk::ProcessGroup;

std::vector<int> all_ranks(const ProcessGroup& group) {
    std::vector<int> ranks;
    for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(rank);
    return ranks;
}

/// Counts the entries of a folder of /proc: this process's open files or threads.
std::size_t count_entries(const char* folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
}

std::size_t resident_kilobytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4;
}

}  // namespace

TEST_CASE("a subgroup has its ranks in the order given, and all verbs") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() < 3) return;
        ProcessGroup part = group.subgroup({2, 0});
        CHECK(part.is_member() == (group.rank() == 0 || group.rank() == 2));
        if (!part.is_member()) return;
        CHECK(part.size() == 2);
        CHECK(part.rank() == (group.rank() == 2 ? 0 : 1));
        CHECK(part.all_gather_value(group.rank()) == std::vector{2, 0});
        CHECK(part.backend() == group.backend());
        test::check_user_functions(part);
        test::check_messages(part);
        test::check_many(part);
    });
}

TEST_CASE(
    "a group knows its members' ranks in the job and its name, and describes itself identically on all "
    "members") {
    test::on_ranks([](ProcessGroup& group) {
        CHECK(group.ranks().size() == static_cast<std::size_t>(group.size()));
        if (group.size() < 3) return;
        ProcessGroup part = group.subgroup({2, 0});
        ProcessGroup copy = group.duplicate();
        CHECK(copy.ranks() == group.ranks());
        CHECK(copy.name() != group.name());
        if (!part.is_member()) return;
        CHECK(part.ranks() == std::vector{group.ranks()[2], group.ranks()[0]});
        CHECK(part.name() != group.name());
        const std::string text = part.describe();
        for (const std::string& other : part.all_gather_object(text)) CHECK(other == text);
        for (const std::string& other : part.all_gather_object(part.name())) CHECK(other == part.name());
        CHECK(test::contains(text, "group " + part.name() + ": 2 ranks over " + part.backend() + "\n"));
        CHECK(test::contains(
            text, "rank 0, rank " + std::to_string(group.ranks()[2]) + " of the job: local rank "));
        CHECK(test::contains(text, " on " + dptk::detail::host_name() + ", process "));
        CHECK(test::contains(
            text, "rank 1, rank " + std::to_string(group.ranks()[0]) + " of the job: local rank "));
    });
}

TEST_CASE("a rank outside a subgroup gets a group that says so when it is used") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() < 2) return;
        ProcessGroup part = group.subgroup({0});
        if (group.rank() == 0) {
            CHECK(part.all_reduce_value(5) == 5);
            return;
        }
        CHECK_FALSE(part.is_member());
        const std::string why =
            dptk::detail::text("rank ", group.rank(), " is not in this group, which has the ranks 0");
        CHECK_THROWS_WITH_AS(part.barrier(), why.c_str(), dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(static_cast<void>(part.rank()), why.c_str(), dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(static_cast<void>(part.duplicate()), why.c_str(), dptk::ArgumentError);
        ProcessGroup taken = std::move(part);
        CHECK_THROWS_WITH_AS(taken.barrier(), why.c_str(), dptk::ArgumentError);
    });
}

TEST_CASE("invalid subgroups are refused on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        const auto refused = [&]<class E>(E*, std::string_view part, const std::vector<int>& ranks) {
            std::string text;
            CHECK(test::throws<E>(
                text, [&] { static_cast<void>(group.subgroup(ranks)); }, test::Agreed::yes));
            CAPTURE(text);
            CHECK(test::contains(text, part));
        };
        using Argument = dptk::ArgumentError*;
        refused(Argument{}, "subgroup of 0 ranks: expected at least 1", {});
        refused(Argument{}, "rank -1 is outside", {0, -1});
        refused(Argument{}, dptk::detail::text("rank ", group.size(), " is outside"), {group.size()});
        refused(Argument{}, "rank 0 is listed twice", {0, 0});
        if (group.size() > 1) {
            std::vector<int> own = {group.rank()};
            refused(static_cast<dptk::MismatchError*>(nullptr), "subgroups differ: rank 1 has", own);
            if (group.rank() == 1) own = {7000};
            refused(Argument{}, "rank 1: subgroup of the ranks 7000: rank 7000 is outside", own);
        }
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(group.split(-2)); }, test::Agreed::yes));
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(group.subgroup({0}, {.backend = "carrier pigeon"})); },
            test::Agreed::yes));
        CHECK(test::contains(text, "this program has no backend carrier pigeon"));
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(group.split(0, 0, {.timeout = 0ms})); }, test::Agreed::yes));
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

TEST_CASE("split makes one group for each color, in the order of keys") {
    test::on_ranks([](ProcessGroup& group) {
        const int color = group.rank() % 2;
        ProcessGroup part = group.split(color, -group.rank());
        CHECK(part.size() == (group.size() + 1 - color) / 2);
        const std::vector<int> ranks = part.all_gather_value(group.rank());
        CHECK(std::ranges::is_sorted(ranks, std::ranges::greater{}));
        for (const int rank : ranks) CHECK(rank % 2 == color);
        const ProcessGroup none = group.split(group.rank() == 0 ? dptk::no_color : 3);
        CHECK(none.is_member() == (group.rank() != 0));
    });
}

TEST_CASE("split_by_host makes one group for each host") {
    test::on_ranks([](ProcessGroup& group) {
        const ProcessGroup host = group.split_by_host();
        CHECK(host.size() == group.local_size());
        CHECK(host.rank() == group.local_rank());
        CHECK(host.local_size() == host.size());
    });
}

TEST_CASE("disjoint and overlapping groups work side by side") {
    test::on_ranks([](ProcessGroup& group) {
        const int size = group.size();
        const int rank = group.rank();
        ProcessGroup parity = group.split(rank % 2);
        std::vector<ProcessGroup> pairs;  // of neighbors, so that each inner rank is in two
        for (int first = 0; first + 1 < size; ++first) pairs.push_back(group.subgroup({first, first + 1}));
        std::vector<float> all(1000, 1.0F);
        std::vector<float> some(1000, 1.0F);
        for (int i = 0; i < 20; ++i) {
            dptk::Work in_all = group.all_reduce_async(all, dptk::ReduceOp::avg);
            dptk::Work in_parity = parity.all_reduce_async(some, dptk::ReduceOp::avg);
            for (ProcessGroup& pair : pairs) {
                if (pair.is_member()) CHECK(pair.all_reduce_value(1) == 2);
            }
            in_all.wait();
            in_parity.wait();
        }
        CHECK(all == some);
    });
}

TEST_CASE("a subgroup outlives its group") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<ProcessGroup> parts;
        {
            ProcessGroup between = group.duplicate();
            parts.push_back(between.subgroup(all_ranks(group)));
        }
        CHECK(parts[0].all_reduce_value(1) == group.size());
    });
}

TEST_CASE("a subgroup of a subgroup") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() < 3) return;
        ProcessGroup part = group.subgroup({2, 1, 0});
        if (!part.is_member()) return;
        ProcessGroup inner = part.subgroup({1, 0});
        CHECK(inner.is_member() == (group.rank() != 0));
        if (inner.is_member()) CHECK(inner.all_gather_value(group.rank()) == std::vector{1, 2});
    });
}

TEST_CASE("a subgroup has a timeout of its own") {
    dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
    std::atomic<bool> waited = false;
    dptk::launch_threads(3, [&](ProcessGroup& group) {
        ProcessGroup pair = group.subgroup({0, 2}, {.timeout = 300ms});
        if (group.rank() != 0) {
            while (!waited) std::this_thread::sleep_for(1ms);
            return;
        }
        std::string text;
        CHECK(test::throws<dptk::TimeoutError>(text, [&] { pair.barrier(); }));
        CHECK(test::contains(text, "barrier #1 has not completed within 300 ms; missing: rank 2"));
        waited = true;
    });
    dptk::set_log_sink({});
}

TEST_CASE("over TCP or Gloo, whatever the group's own transport") {
    for (const std::string backend : {"tcp", "gloo"}) {
        if (backend == "tcp" ? !dptk::is_tcp_available() : !dptk::is_gloo_available()) continue;
        CAPTURE(backend);
        test::on_ranks([&](ProcessGroup& group) {
            if (group.size() == 1) return;
            ProcessGroup part = group.subgroup(all_ranks(group), {.timeout = 60s, .backend = backend});
            CHECK(part.backend() == backend);
            CHECK(part.local_size() == group.size());
            test::check_user_functions(part);
            test::check_many(part);
            ProcessGroup pairs = group.split(group.rank() / 2, 0, {.backend = backend});
            CHECK(pairs.all_reduce_value(1) == pairs.size());
        });
    }
}

TEST_CASE("a thousand groups come and go without growth") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() > 4) return;
        const auto make = [&](int times) {
            for (int i = 0; i < times; ++i) {
                ProcessGroup part = i % 2 == 0 ? group.split(group.rank() % 2) : group.duplicate();
                static_cast<void>(part.all_reduce_value(1));
            }
            group.barrier();
            std::this_thread::sleep_for(1000ms);  // connections close in the background
            group.barrier();
        };
        make(100);
        const std::size_t files = count_entries("/proc/self/fd");
        const std::size_t threads = count_entries("/proc/self/task");
        const std::size_t memory = resident_kilobytes();
        make(group.size() == 2 ? 1000 : 100);
        const auto has_grown = [&] {
            return count_entries("/proc/self/fd") > files + 4 ||
                   count_entries("/proc/self/task") > threads + 4;
        };
        for (int i = 0; i < 200 && has_grown(); ++i) std::this_thread::sleep_for(100ms);  // on a busy machine
        CHECK(count_entries("/proc/self/fd") <= files + 4);
        CHECK(count_entries("/proc/self/task") <= threads + 4);
        group.barrier();
        CHECK(resident_kilobytes() < memory + 20'000);
    });
}

TEST_CASE("a program knows which transports it has") {
    CHECK_FALSE(dptk::is_nccl_available());
    if (test::is_launched()) CHECK(dptk::is_tcp_available());
}
