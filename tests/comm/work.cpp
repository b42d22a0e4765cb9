// Work: what happens to started operations that are dropped, by the end of a scope or by an exception, and
// calls from two threads at once.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace {

using namespace std::chrono_literals;
using dptk::ProcessGroup;

}  // namespace

TEST_CASE("the destructor of the last Work waits for the operation") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> sum(1000, 1), gathered(static_cast<std::size_t>(group.size()));
        const double own = group.rank();
        if (group.rank() == 0) std::this_thread::sleep_for(50ms);
        {
            dptk::Work copy;
            {
                const dptk::Work work = group.all_reduce_async(sum);
                copy = work;
            }
            static_cast<void>(group.all_gather_async(std::span(&own, 1), gathered));
        }
        CHECK(sum == std::vector<double>(1000, group.size()));
        for (int rank = 0; rank < group.size(); ++rank)
            CHECK(gathered[static_cast<std::size_t>(rank)] == rank);
    });
}

TEST_CASE("detach: the destructor returns at once, and barrier() completes the operation") {
    if (test::is_launched()) return;
    std::atomic<bool> released = false;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        std::vector<double> sum(10, 1);
        if (group.rank() == 1) {
            while (!released) std::this_thread::sleep_for(1ms);
        }
        {
            dptk::Work work = group.all_reduce_async(sum);
            work.detach();
        }
        if (group.rank() == 0) released = true;  // rank 1 has not started yet
        group.barrier();
        CHECK(sum == std::vector<double>(10, 2));
    });
}

TEST_CASE("an exception that drops a Work fails the job, so that nobody waits") {
    if (test::is_launched()) return;
    std::array<std::string, 2> texts;
    std::atomic<int> untouched = 0;
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(dptk::launch_threads(2,
                                         [&](ProcessGroup& group) {
                                             std::vector<double> sum(10, 1);
                                             try {
                                                 if (group.rank() == 0) {
                                                     const dptk::Work work = group.all_reduce_async(sum);
                                                     throw std::runtime_error("on rank 0 alone");
                                                 }
                                                 std::this_thread::sleep_for(100ms);
                                                 group.barrier();
                                             } catch (const std::exception& error) {
                                                 texts[static_cast<std::size_t>(group.rank())] = error.what();
                                                 if (sum == std::vector<double>(10, 1)) ++untouched;
                                                 throw;
                                             }
                                         }),
                    std::runtime_error);
    CHECK(std::chrono::steady_clock::now() - begin < 20s);
    CHECK(texts[0] == "on rank 0 alone");
    CHECK_MESSAGE(test::contains(texts[1], "rank 0 left an operation in flight because of an exception"),
                  texts[1]);
    CHECK(untouched == 2);
}

TEST_CASE("an agreed error that drops a Work leaves the group usable") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> sum(10, 1);
        std::string text;
        CHECK(test::throws<dptk::Error>(
            text,
            [&] {
                ProcessGroup other = group.duplicate();
                const dptk::Work work = other.all_reduce_async(sum);
                dptk::on_all_or_none(group, [] { throw std::runtime_error("no such file"); });
            },
            test::Agreed::yes));
        CHECK(sum == std::vector<double>(10, group.size()));
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

TEST_CASE("a stored agreed error does not hide a later exception of one rank") {
    if (test::is_launched()) return;
    std::string text;
    CHECK_THROWS(dptk::launch_threads(2, [&](ProcessGroup& group) {
        std::exception_ptr stored;
        try {
            dptk::on_all_or_none(group, [] { throw std::runtime_error("no such file"); });
        } catch (const dptk::Error&) {
            stored = std::current_exception();
        }
        CHECK(group.all_reduce_value(1) == 2);
        const auto begin = std::chrono::steady_clock::now();
        try {
            ProcessGroup other = group.duplicate();
            if (group.rank() == 0) throw std::runtime_error("on rank 0 alone");
            other.barrier();
        } catch (const std::exception& error) {
            if (group.rank() == 1) text = error.what();
            CHECK(std::chrono::steady_clock::now() - begin < 20s);
            throw;
        }
    }));
    CHECK_MESSAGE(test::contains(text, "left its process group because of an exception"), text);
}

TEST_CASE("two threads in one group at once are an error that names both calls") {
    if (test::is_launched()) return;
    std::atomic<bool> entered = false;
    std::atomic<bool> refused = false;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        if (group.rank() == 1) {
            while (!refused) std::this_thread::sleep_for(1ms);
            group.barrier();
            return;
        }
        std::thread second([&] {
            while (!entered) std::this_thread::sleep_for(1ms);
            std::this_thread::sleep_for(20ms);
            std::string text;
            std::vector<float> data(4);
            CHECK(test::throws<dptk::ArgumentError>(text, [&] { group.all_reduce(data); }));
            CHECK_MESSAGE(
                test::contains(text,
                               "all_reduce(sum, 4 x f32) was called while another thread is in barrier #1"),
                text);
            refused = true;
        });
        entered = true;
        group.barrier();
        second.join();
    });
}

TEST_CASE("thousands of started messages") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() < 2) return;
        constexpr std::size_t count = 3000;
        const int to = (group.rank() + 1) % group.size();
        const int from = (group.rank() + group.size() - 1) % group.size();
        std::vector<std::size_t> sent(count), received(count);
        std::vector<dptk::Work> works;
        for (std::size_t i = 0; i < count; ++i) {
            sent[i] = i;
            works.push_back(group.send_async(std::span(sent).subspan(i, 1), to));
            works.push_back(group.recv_async(std::span(received).subspan(i, 1), from));
        }
        works.back().wait();
        for (dptk::Work& work : works) work.wait();
        CHECK(received == sent);
    });
}

TEST_CASE("a rank's forked child cannot call its groups, and its exit changes nothing") {
    test::on_ranks([](ProcessGroup& group) {
        if (!test::is_launched() && group.size() > 1) return;  // thread ranks do not exist in a child
        CHECK(group.all_reduce_value(1) == group.size());
        std::optional<ProcessGroup> other = group.duplicate();
        const int status = test::exit_status_of_child([&] {
            other.reset();
            std::string text;
            if (!test::throws<dptk::ArgumentError>(text,
                                                   [&] { static_cast<void>(group.all_reduce_value(1)); }))
                return 1;
            return test::contains(text, "was called in a process that was forked from rank") ? 0 : 2;
        });
        CHECK(status == 0);
        CHECK(group.all_reduce_value(1) == group.size());
        CHECK(other->all_reduce_value(1) == group.size());
    });
}

TEST_CASE("polling does not run an operation that MPI can only run as a whole") {
    const char* const setting = std::getenv("DPTK_TEST_MPI");
    if (setting == nullptr || std::string(setting) != "funneled") return;
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<dptk::bfloat16> data(100, dptk::bfloat16(1.0F));
        std::vector<float> after(10, 1.0F);
        if (group.rank() != 0) std::this_thread::sleep_for(500ms);
        dptk::Work sum = group.all_reduce_async(data);
        dptk::Work later = group.all_reduce_async(after);
        if (group.rank() == 0) {
            const auto begin = std::chrono::steady_clock::now();
            CHECK_FALSE(sum.done());
            CHECK_FALSE(later.done());
            CHECK_FALSE(sum.wait(10ms));
            CHECK(std::chrono::steady_clock::now() - begin < 400ms);
        }
        later.wait();
        CHECK(sum.done());
        CHECK(after[9] == static_cast<float>(group.size()));
        CHECK(static_cast<float>(data[99]) == static_cast<float>(group.size()));
    });
}
