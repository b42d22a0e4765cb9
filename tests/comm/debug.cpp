// DPTK_DEBUG=detail: if the calls of the ranks differ, all ranks throw before any data is sent.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/debug_mode.hpp"
#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::ReduceOp;

/// Checks that `call(group, odd)` throws the same MismatchError on all ranks; `odd` is true on the last rank.
/// The error's text must name that rank and contain all `parts`. Afterwards the group must be usable.
void expect_mismatch(const std::vector<std::string>& parts,
                     const std::function<void(ProcessGroup&, bool)>& call) {
    const test::DebugMode debug;
    test::on_ranks([&](ProcessGroup& group) {
        if (group.size() == 1) return;
        const auto begin = std::chrono::steady_clock::now();
        const int odd = group.size() - 1;
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { call(group, group.rank() == odd); }, test::Agreed::yes));
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
        CAPTURE(text);
        CHECK(test::contains(text, dptk::detail::text("rank ", odd)));
        for (const std::string& part : parts) CHECK(test::contains(text, part));
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

}  // namespace

TEST_CASE("another verb") {
    expect_mismatch({"calls broadcast(root 0, 4 x f32)", "calls all_reduce(sum, 4 x f32)"},
                    [](ProcessGroup& group, bool odd) {
                        std::vector<float> data(4);
                        if (odd) return group.broadcast(data);
                        group.all_reduce(data);
                    });
}

TEST_CASE("another order") {
    expect_mismatch({"barrier", "all_reduce(sum, 4 x f32)", "call #"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(4);
        if (odd) group.barrier();
        group.all_reduce(data);
        if (!odd) group.barrier();
    });
}

TEST_CASE("another dtype") {
    expect_mismatch({"4 x i32", "4 x f32"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> floats(4);
        std::vector<int> ints(4);
        if (odd) return group.all_reduce(ints);
        group.all_reduce(floats);
    });
}

TEST_CASE("another count") {
    expect_mismatch({"all_reduce(sum, 5 x f32)", "all_reduce(sum, 4 x f32)"},
                    [](ProcessGroup& group, bool odd) {
                        std::vector<float> data(odd ? 5 : 4);
                        group.all_reduce(data);
                    });
    expect_mismatch({"in parts of"}, [](ProcessGroup& group, bool odd) {
        const auto size = static_cast<std::size_t>(group.size());
        std::vector<std::size_t> counts(size, 2);
        if (odd) std::swap(counts[0], ++counts[size - 1]);
        std::vector<float> input(counts[static_cast<std::size_t>(group.rank())]);
        std::vector<float> output(2 * size + (odd ? 1 : 0));
        group.all_gather(input, output, counts);
    });
}

TEST_CASE("another operation") {
    expect_mismatch({"all_reduce(max, 4 x f32)", "all_reduce(min, 4 x f32)"},
                    [](ProcessGroup& group, bool odd) {
                        std::vector<float> data(4);
                        group.all_reduce(data, odd ? ReduceOp::max : ReduceOp::min);
                    });
    expect_mismatch({"user's function"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(4);
        if (odd) return group.all_reduce(data, [](float a, float b) { return a + b; });
        group.all_reduce(data);
    });
}

TEST_CASE("another root") {
    expect_mismatch({"root 1", "root 0"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(4);
        group.broadcast(data, odd ? 1 : 0);
    });
}

TEST_CASE("another algorithm") {
    expect_mismatch({"by ring"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(4);
        ProcessGroup other = group.duplicate();
        if (odd) other.set_all_reduce_algorithm(dptk::AllReduceAlgorithm::ring);
        other.all_reduce(data);
    });
}

TEST_CASE("another group") {
    expect_mismatch({"wait for each other in different groups", "all_reduce(sum, 4 x f32) of group"},
                    [](ProcessGroup& group, bool odd) {
                        std::vector<float> data(4);
                        ProcessGroup a = group.duplicate();
                        ProcessGroup b = group.duplicate();
                        (odd ? a : b).all_reduce(data);
                    });
}

TEST_CASE("in the background the error comes with the Work") {
    expect_mismatch({"5 x f32", "4 x f32"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(odd ? 5 : 4);
        group.all_reduce_async(data).wait();
    });
    expect_mismatch({"different groups"}, [](ProcessGroup& group, bool odd) {
        std::vector<float> data(4);
        ProcessGroup a = group.duplicate();
        ProcessGroup b = group.duplicate();
        (odd ? a : b).all_reduce_async(data).wait();
    });
}

TEST_CASE("calls that agree are carried out as ever") {
    const test::DebugMode debug;
    test::on_ranks([](ProcessGroup& group) {
        test::check_user_functions(group);
        test::check_messages(group);
        test::check_many(group);
        ProcessGroup other = group.duplicate();
        std::vector<float> data(1000, 1.0F);
        dptk::Work background = other.all_reduce_async(data);
        for (int i = 0; i < 10; ++i) CHECK(group.all_reduce_value(1) == group.size());
        background.wait();
        CHECK(data[999] == static_cast<float>(group.size()));
    });
}

TEST_CASE("a rank that comes late is no mismatch, in whichever group it is waited for") {
    const test::DebugMode debug;
    test::on_ranks([](ProcessGroup& group) {
        ProcessGroup other = group.duplicate();
        std::vector<float> data(1000, 1.0F);
        dptk::Work background;
        if (group.rank() == 0) background = other.all_reduce_async(data);
        if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1600));
        group.barrier();
        if (group.rank() != 0) background = other.all_reduce_async(data);
        background.wait();
        CHECK(data[0] == static_cast<float>(group.size()));
    });
}

TEST_CASE("a rank that waits in one group is no mismatch where its thread has come to another") {
    const test::DebugMode debug;
    test::on_ranks([](ProcessGroup& group) {
        // Below MPI_THREAD_MULTIPLE no background thread enters a call while the program waits elsewhere.
        if (group.size() != 3 || std::getenv("DPTK_TEST_MPI") != nullptr) return;
        ProcessGroup all = group.duplicate();
        ProcessGroup pair = group.subgroup({0, 1});
        std::vector<float> data(10, 1.0F);
        std::vector<float> others(10, 1.0F);
        if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        dptk::Work work = all.all_reduce_async(data);
        if (group.rank() != 0) work.wait();
        if (pair.is_member()) pair.all_reduce(others);
        work.wait();
        CHECK(data[9] == 3.0F);
        CHECK(others[9] == (pair.is_member() ? 2.0F : 1.0F));
    });
}

TEST_CASE("a rank that waits in one group for a while only is no mismatch where another one waits for it") {
    const test::DebugMode debug;
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() > 3) return;
        ProcessGroup other = group.duplicate();
        std::vector<float> data(10, 1.0F);
        if (group.rank() == 0) {
            dptk::Work work = other.all_reduce_async(data);
            if (group.size() > 1 && std::getenv("DPTK_TEST_MPI") == nullptr)
                CHECK_FALSE(work.wait(std::chrono::milliseconds(1500)));
            std::this_thread::sleep_for(std::chrono::milliseconds(800));
            group.barrier();
            work.wait();
        } else {
            group.barrier();
            other.all_reduce(data);
        }
        CHECK(data[9] == static_cast<float>(group.size()));
    });
}

TEST_CASE("a rank that waits in one group is no mismatch where its thread is to come to another") {
    const test::DebugMode debug;
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() != 2 || std::getenv("DPTK_TEST_MPI") != nullptr) return;
        ProcessGroup other = group.duplicate();
        std::vector<float> first(10, 1.0F);
        std::vector<float> second(10, 1.0F);
        const auto slow_sum = [&](const float& a, const float& b) {
            if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(250));
            return a + b;
        };
        dptk::Work reduced = other.reduce_async(first, 0, slow_sum);
        dptk::Work summed = other.all_reduce_async(second);
        if (group.rank() == 0) {
            group.barrier();  // while the background thread is still in the first call
            summed.wait();
        } else {
            summed.wait();
            group.barrier();
        }
        reduced.wait();
        CHECK(second[9] == 2.0F);
    });
}

TEST_CASE("a level that there is not is refused") {
    const test::DebugMode debug("loud");
    CHECK_THROWS_WITH_AS(dptk::launch_threads(2, [](ProcessGroup&) {}),
                         "invalid DPTK_DEBUG='loud': expected off or detail", dptk::ArgumentError);
}
