// Thread ranks: failures, and mismatched calls.
#include <doctest/doctest.h>
#include <dptk/comm/registry.hpp>
#include <dptk/comm/thread.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/debug_mode.hpp"
#include "support/ranks.hpp"

TEST_CASE("an exception on one rank ends the others' waits and is rethrown") {
    for (const int ranks : {2, 3, 8}) {
        std::atomic<int> lost = 0;
        const auto run = [&] {
            dptk::launch_threads(ranks, [&](dptk::ProcessGroup& group) {
                if (group.rank() == 1) throw std::runtime_error("boom");
                std::string text;
                if (test::throws<dptk::PeerLostError>(text, [&] { group.barrier(); })) {
                    lost += test::contains(text, "rank 1: boom");
                    throw dptk::PeerLostError(text);
                }
            });
        };
        CHECK_THROWS_WITH_AS(run(), "boom", std::runtime_error);
        CHECK(lost == ranks - 1);
    }
}

TEST_CASE("a rank that has moved its group elsewhere may throw as well") {
    const auto run = [] {
        dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
            dptk::ProcessGroup own = std::move(group);
            own.barrier();
            if (own.rank() == 1) throw std::runtime_error("moved");
            own.barrier();
        });
    };
    CHECK_THROWS_WITH_AS(run(), "moved", std::runtime_error);
}

TEST_CASE("a function that throws while elements are combined ends everybody, and nobody gets a result") {
    std::atomic<int> results = 0;
    const auto run = [&] {
        dptk::launch_threads(3, [&](dptk::ProcessGroup& group) {
            std::vector<int> data(3000, group.rank());
            group.all_reduce(data, [&](int a, int b) {
                if (group.rank() == 1) throw std::runtime_error("no sum");
                return a + b;
            });
            ++results;
        });
    };
    CHECK_THROWS_WITH_AS(run(), "no sum", std::runtime_error);
    CHECK(results == 0);
}

TEST_CASE("messages that wait are taken back when the job fails, or when their sender does so") {
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    const auto mailbox = std::make_shared<dptk::detail::ThreadMailbox>(2, job_state);
    job_state->subscribe(mailbox);
    std::vector<int> one(1);
    const dptk::Buffer buffer = dptk::detail::buffer_of(one);
    const auto post = [&](dptk::Verb verb, int rank) {
        return mailbox->post(rank, {verb, buffer, 1 - rank, 0});
    };

    auto withdrawn = post(dptk::Verb::send, 0);
    mailbox->withdraw(*withdrawn);
    auto received = post(dptk::Verb::recv, 1);
    CHECK_FALSE(received->wait(std::chrono::milliseconds(1)));
    job_state->fail("that was all");
    CHECK(received->wait(std::chrono::nanoseconds(0)));
    CHECK(received->unreported_error() != nullptr);
    CHECK_THROWS_AS(static_cast<void>(post(dptk::Verb::send, 0)), dptk::PeerLostError);
    withdrawn.reset();
    received.reset();
    CHECK(mailbox.use_count() == 1);
}

TEST_CASE("a message of another size breaks the job also where both sides have started it") {
    std::atomic<int> broken = 0;
    const auto run = [&] {
        dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
            std::vector<int> data(group.rank() == 0 ? 3 : 5);
            dptk::Work work = group.rank() == 0 ? group.recv_async(data, 1) : group.send_async(data, 0);
            CHECK_THROWS_AS(work.wait(), dptk::MismatchError);
            try {
                group.barrier();
            } catch (const dptk::PeerLostError&) {
                ++broken;
                throw;
            }
        });
    };
    CHECK_THROWS_AS(run(), dptk::PeerLostError);
    CHECK(broken == 2);
}

TEST_CASE("an exception in the middle of background work ends everybody") {
    const auto run = [] {
        dptk::launch_threads(4, [](dptk::ProcessGroup& group) {
            std::vector<float> data(1000);
            dptk::ProcessGroup background = group.duplicate();
            auto work = background.all_reduce_async(data);
            if (group.rank() == 2) throw std::logic_error("in mid-step");
            for (int i = 0; i < 1000; ++i) group.barrier();
        });
    };
    CHECK_THROWS_WITH_AS(run(), "in mid-step", std::logic_error);
}

TEST_CASE(
    "a rank that ends early is an error for those that wait for it, in a check of their calls as well") {
    const auto count_told = [](const char* level, const char* words) {
        const test::DebugMode debug(level);
        std::atomic<int> told = 0;
        const auto run = [&] {
            dptk::launch_threads(3, [&](dptk::ProcessGroup& group) {
                group.barrier();
                if (group.rank() == 2) return;
                std::string text;
                CHECK(test::throws<dptk::PeerLostError>(text, [&] { group.barrier(); }));
                told += test::contains(text, words);
            });
        };
        CHECK_NOTHROW(run());
        return told.load();
    };
    // The other rank may report one that stopped waiting.
    CHECK(count_told("off", "rank 2 has left the group, and rank") >= 1);
    CHECK(count_told("off", "waits for it in barrier") >= 1);
    CHECK(count_told("detail", "rank 2 has left its process group after 1 calls, and rank") == 2);
}

TEST_CASE("memory that a rank gives up is not used by others any more") {
    std::atomic<bool> receives = false;
    const auto run = [&] {
        dptk::launch_threads(3, [&](dptk::ProcessGroup& group) {
            constexpr std::size_t count = std::size_t{1} << 24;
            if (group.rank() == 0) {
                {
                    dptk::Allocation<float> data = group.allocate<float>(count);
                    group.send_async(data, 1).detach();
                }
                group.barrier();
            } else if (group.rank() == 1) {
                std::vector<float> data(count);
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                receives = true;
                group.recv(data, 0);
                group.barrier();
            } else {
                while (!receives) std::this_thread::yield();
                throw std::runtime_error("while they copy");
            }
        });
    };
    CHECK_THROWS_WITH_AS(run(), "while they copy", std::runtime_error);
}

TEST_CASE("memory that all ranks can access exists as long as one of them has its part") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        dptk::Allocation<int> memory = group.allocate<int>(1000);
        memory[999] = group.rank();
        const std::vector<void*> peers = group.engine().peer_memory({&memory[999], 1, dptk::DType::i32, {}});
        if (group.rank() == 1) memory = {};
        group.barrier();
        if (group.rank() == 0) CHECK(*static_cast<const int*>(peers[1]) == 1);
        group.barrier();
        CHECK(group.allocate<int>(3).size() == 3);
    });
}

TEST_CASE("calls that differ between ranks are a MismatchError on all, and the group stays usable") {
    const test::DebugMode unchecked("off");  // the call checker reports it in other words
    dptk::launch_threads(4, [](dptk::ProcessGroup& group) {
        const bool odd_one = group.rank() == 2;
        std::vector<float> floats(odd_one ? 5U : 4U, 1.0F);
        std::vector<double> doubles(4);
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(text, [&] { group.all_reduce(floats); }));
        CHECK(text == "rank 2 calls all_reduce(sum, 5 x f32) where rank 0 calls all_reduce(sum, 4 x f32)");
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { group.all_reduce(doubles, odd_one ? dptk::ReduceOp::max : dptk::ReduceOp::min); }));
        CHECK(test::throws<dptk::MismatchError>(text, [&] { group.broadcast(doubles, odd_one ? 1 : 0); }));
        CHECK(test::throws<dptk::MismatchError>(text, [&] {
            if (odd_one) {
                group.barrier();
            } else {
                group.broadcast(doubles);
            }
        }));
        auto work = group.all_reduce_async(floats);
        CHECK(test::throws<dptk::MismatchError>(text, [&] { work.wait(); }));
        CHECK(group.all_reduce_value(1) == 4);
    });
}

TEST_CASE("the error of a dropped Work is thrown by the next barrier, also where somebody looked too early") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        std::vector<float> data(group.rank() == 0 ? 3U : 4U);
        {
            dptk::Work work = group.all_reduce_async(data);
            if (group.rank() == 0) static_cast<void>(work.error());
        }
        std::string text;
        const bool thrown = test::throws<dptk::MismatchError>(text, [&] { group.barrier(); });
        if (group.rank() == 1) CHECK(thrown);
        CHECK_NOTHROW(group.barrier());
    });
}

TEST_CASE("the error of a dropped Work is logged when the group closes") {
    const test::DebugMode unchecked("off");  // the call checker reports it in other words
    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { lines.emplace_back(line); });
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        std::vector<float> data(group.rank() == 0 ? 3U : 4U);
        dptk::ProcessGroup other = group.duplicate();
        other.all_reduce_async(data).detach();
    });
    dptk::set_log_sink({});
    REQUIRE(lines.size() == 2);
    CHECK(test::contains(lines[0], "while a process group closed: rank 1 calls all_reduce"));
}

TEST_CASE(
    "an agreed error unwinds past duplicates and leaves the group usable; the next one's own error does "
    "not") {
    std::atomic<int> lost = 0;
    const auto run = [&] {
        dptk::launch_threads(3, [&](dptk::ProcessGroup& group) {
            std::string text;
            CHECK(test::throws<dptk::Error>(text, [&] {
                dptk::ProcessGroup other = group.duplicate();
                dptk::on_all_or_none(group, [] { throw std::runtime_error("no such file"); });
            }));
            CHECK(text == "all ranks: no such file");
            CHECK(dptk::on_all_or_none(group, [&] { return std::to_string(group.rank()); }) ==
                  std::to_string(group.rank()));
            CHECK(group.all_reduce_value(1) == 3);
            try {
                dptk::ProcessGroup other = group.duplicate();
                if (group.rank() == 1) throw std::runtime_error("on rank 1 alone");
                other.barrier();
            } catch (const std::exception&) {
                ++lost;
            }
        });
    };
    CHECK_NOTHROW(run());
    CHECK(lost == 3);
}

TEST_CASE("a duplicate against another call is a MismatchError, too") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(text, [&] {
            if (group.rank() == 0) {
                group.barrier();
            } else {
                static_cast<void>(group.duplicate());
            }
        }));
        CHECK(group.all_reduce_value(1) == 2);
    });
}

TEST_CASE("launch_threads wants at least one rank") {
    CHECK_THROWS_AS(dptk::launch_threads(0, [](dptk::ProcessGroup&) {}), dptk::ArgumentError);
}

TEST_CASE("messages find their receiver by rank and tag, and sizes must fit") {
    const dptk::detail::ThreadJob job(2, {});
    dptk::launch_threads(2, [&](const dptk::ProcessGroup& group) {
        dptk::ThreadTransport transport = job.transport(group.rank());
        std::array<int, 2> first = {1, 2};
        std::array<int, 2> second = {3, 4};
        const dptk::Buffer a{first.data(), 2, dptk::DType::i32, {}};
        const dptk::Buffer b{second.data(), 2, dptk::DType::i32, {}};
        std::string text;
        if (group.rank() == 0) {
            transport.send(a, 1, 7);
            transport.send(b, 1, 8);
            CHECK(test::throws<dptk::MismatchError>(text, [&] { transport.send(a, 1, 9); }));
        } else {
            std::array<int, 2> got = {};
            const dptk::Buffer into{got.data(), 2, dptk::DType::i32, {}};
            transport.recv(into, 0, 7);
            CHECK(got == first);
            transport.recv(into, 0, 8);
            CHECK(got == second);
            CHECK(test::throws<dptk::MismatchError>(text, [&] { transport.recv(into.slice(0, 1), 0, 9); }));
        }
    });
}

TEST_CASE("threads of several processes need a transport that this program does not include") {
    REQUIRE_FALSE(dptk::is_tcp_available());
    dptk::launch_threads(2, [](dptk::ProcessGroup& processes) {
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::launch_threads(processes, 2, [](dptk::ProcessGroup&) {}); },
            test::Agreed::yes));
        CHECK(test::contains(text,
                             "launch_threads in several processes needs TCP: include <dptk/comm/tcp.hpp>"));
    });
}
