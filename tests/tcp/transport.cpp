// The TCP transport: messages, connections, groups.
#include <dptk/comm/shm.hpp>
#include <dptk/control/health/program_end.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "support.hpp"
#include "support/verb_suite.hpp"

using namespace std::chrono_literals;

namespace {

using dptk::TcpTransport;

}  // namespace

TEST_CASE("every verb over TCP, at 1 to 4 ranks") {
    for (const int ranks : {1, 2, 3, 4}) {
        CAPTURE(ranks);
        test::on_groups({.size = ranks}, [](dptk::ProcessGroup& group) {
            test::check_verbs(group);
            test::check_messages_in_background(group);
        });
    }
}

TEST_CASE("shared memory over TCP takes the options of the job, whose failures end its calls") {
    const test::Job job{.size = 3};
    std::atomic<int> ended = 0;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            dptk::ProcessGroup group = dptk::ShmCommunicator(dptk::ShmTransport(
                TcpTransport(job.options(rank)), {}, {.timeout = 60s, .store = job.store}));
            std::vector<float> data(10'000, 1.0F);
            group.all_reduce(data);
            CHECK(data[9'999] == 3.0F);
            if (rank == 1) {
                group.engine().control()->job_state()->fail("the reactor is on fire");
            } else {
                CHECK(test::contains(test::message_of<dptk::PeerLostError>([&] { group.barrier(); }),
                                     "the reactor is on fire"));
            }
            ++ended;
            while (ended < job.size) std::this_thread::sleep_for(1ms);
        });
    }
}

TEST_CASE("messages are matched by sender and tag, whatever the order in which they are received") {
    constexpr int tags[] = {0, 7, dptk::max_tag, 100};
    constexpr std::size_t counts[] = {0, 3, 70'000, 1'500'000};
    for (const int ranks : {2, 3, 4}) {
        test::on_transports({.size = ranks}, [&](TcpTransport& transport) {
            if (transport.rank() != 0) {
                std::vector<std::vector<int>> data;
                std::vector<std::shared_ptr<dptk::WorkState>> sent;
                for (std::size_t i = 0; i < std::size(tags); ++i)
                    data.emplace_back(counts[i], 100 * transport.rank() + static_cast<int>(i));
                for (std::size_t i = 0; i < std::size(tags); ++i)
                    sent.push_back(
                        transport.start_message({dptk::Verb::send, test::buffer(data[i]), 0, tags[i]}));
                for (const auto& each : sent) CHECK(each->wait(60s));
                return;
            }
            for (std::size_t i = std::size(tags); i-- > 0;) {
                for (int from = ranks - 1; from > 0; --from) {
                    std::vector<int> data(counts[i], -1);
                    transport.recv(test::buffer(data), from, tags[i]);
                    const int expected = 100 * from + static_cast<int>(i);
                    CHECK(std::count(data.begin(), data.end(), expected) == static_cast<long>(counts[i]));
                }
            }
        });
    }
}

TEST_CASE("messages with the same tag arrive in the order in which they were sent, small and large") {
    test::on_transports({.size = 2}, [](TcpTransport& transport) {
        for (int i = 0; i < 200; ++i) {
            std::vector<int> data(i % 10 == 3 ? 100'000U : 1U, transport.rank() == 0 ? i : -1);
            if (transport.rank() == 0) transport.send(test::buffer(data), 1, 3);
            if (transport.rank() == 1) transport.recv(test::buffer(data), 0, 3);
            CHECK(data.back() == i);
        }
    });
}

TEST_CASE("ranks that send large messages to each other at the same time do not wait for ever") {
    const test::Alarm alarm(60);
    test::on_transports({.size = 3}, [](TcpTransport& transport) {
        const int next = (transport.rank() + 1) % 3;
        const int previous = (transport.rank() + 2) % 3;
        std::vector<int> out(4'000'000, transport.rank());
        std::vector<int> in(4'000'000, -1);
        transport.send_recv(test::buffer(out), next, test::buffer(in), previous, 1);
        CHECK(std::count(in.begin(), in.end(), previous) == 4'000'000);
    });
}

TEST_CASE("a rank stores at most 1 MiB of messages that it does not wait for; others wait at the sender") {
    constexpr int messages = 64;
    std::atomic<bool> has_counted = false;
    test::on_transports({.size = 2}, [&](TcpTransport& transport) {
        std::vector<std::uint8_t> data(100'000);
        if (transport.rank() == 1) {
            while (!has_counted) static_cast<void>(transport.probe(0, 5));
            for (int i = 0; i < messages; ++i) transport.recv(test::buffer(data), 0, 4);
            return;
        }
        std::vector<std::shared_ptr<dptk::WorkState>> sent;
        for (int i = 0; i < messages; ++i)
            sent.push_back(transport.start_message({dptk::Verb::send, test::buffer(data), 1, 4}));
        std::this_thread::sleep_for(200ms);
        const auto done =
            std::count_if(sent.begin(), sent.end(), [](const auto& each) { return each->wait(0s); });
        CHECK(done == (1 << 20) / (100'000 + 64));
        has_counted = true;
        for (const auto& each : sent) CHECK(each->wait(60s));
    });
}

TEST_CASE("a started message progresses while its rank does something else") {
    std::atomic<bool> has_arrived = false;
    test::on_transports({.size = 2}, [&](TcpTransport& transport) {
        std::vector<int> data(3'000'000, transport.rank());
        if (transport.rank() == 0) {
            const auto sent = transport.start_message({dptk::Verb::send, test::buffer(data), 1, 4});
            while (!has_arrived) std::this_thread::sleep_for(1ms);
            CHECK(sent->wait(60s));
        } else {
            transport.recv(test::buffer(data), 0, 4);
            CHECK(std::count(data.begin(), data.end(), 0) == 3'000'000);
            has_arrived = true;
        }
    });
}

TEST_CASE("ranks that connect to each other at the same time have one connection") {
    for (int round = 0; round < 30; ++round) {
        test::on_transports({.size = 4}, [](TcpTransport& transport) {
            std::vector<std::shared_ptr<dptk::WorkState>> sent;
            std::vector<int> own{transport.rank()};
            for (int other = 0; other < 4; ++other) {
                if (other != transport.rank())
                    sent.push_back(transport.start_message({dptk::Verb::send, test::buffer(own), other, 0}));
            }
            int sum = 0;
            for (int i = 0; i < 3; ++i) {
                std::vector<int> received(1);
                const int from = transport.recv_any(test::buffer(received), 0);
                CHECK(received[0] == from);
                sum += from;
            }
            CHECK(sum == 6 - transport.rank());
            for (const auto& each : sent) CHECK(each->wait(60s));
        });
    }
}

TEST_CASE("collectives, messages and duplicates do not interfere, whichever thread calls them") {
    for (const int ranks : {2, 3}) {
        test::on_groups({.size = ranks}, [&](dptk::ProcessGroup& group) {
            dptk::ProcessGroup first = group.duplicate();
            dptk::ProcessGroup second = first.duplicate();
            const auto work = [&](dptk::ProcessGroup& on, int scale) {
                std::size_t wrong = 0;
                for (int round = 0; round < 40; ++round) {
                    std::vector<std::int64_t> data(static_cast<std::size_t>(1 + round * 2000),
                                                   scale * (on.rank() + round));
                    on.all_reduce(data);
                    const std::int64_t expected = scale * (ranks * (ranks - 1) / 2 + ranks * round);
                    wrong += data.front() != expected || data.back() != expected ? 1U : 0U;
                    std::vector<int> message{scale};
                    if (on.rank() == 0) on.send(message, 1, round % 2);
                    if (on.rank() == 1) {
                        message[0] = 0;
                        on.recv(message, 0, round % 2);
                        wrong += message[0] != scale ? 1U : 0U;
                    }
                }
                CHECK(wrong == 0);
            };
            const std::jthread one([&] { work(first, 1); });
            const std::jthread two([&] { work(second, 100); });
            work(group, 10'000);
        });
    }
}

TEST_CASE("subgroups and their duplicates number their own ranks") {
    test::on_groups({.size = 4}, [](dptk::ProcessGroup& group) {
        dptk::ProcessGroup part = group.split(group.rank() % 2, -group.rank());
        CHECK(part.size() == 2);
        CHECK(part.all_gather_value(group.rank()) == std::vector{2 + group.rank() % 2, group.rank() % 2});
        dptk::ProcessGroup copy = part.duplicate();
        CHECK(copy.all_reduce_value(group.rank()) == 2 + 2 * (group.rank() % 2));
        if (copy.rank() == 0) {
            std::vector<int> number(1);
            CHECK(copy.recv(number, dptk::any_rank) == 1);
        } else {
            copy.send(std::vector{1}, 0);
        }
    });
}

TEST_CASE("what was sent before a rank left arrives") {
    for (int round = 0; round < 10; ++round) {
        test::on_transports({.size = 3}, [&](TcpTransport& transport) {
            std::vector<std::uint8_t> data(200'000, static_cast<std::uint8_t>(1 + transport.rank()));
            if (transport.rank() == 0) {
                for (int to = 1; to < 3; ++to) {
                    for (int i = 0; i < 5; ++i) transport.send(test::buffer(data), to, i);
                }
                return;
            }
            if (round % 2 == 0) std::this_thread::sleep_for(20ms);
            for (int i = 0; i < 5; ++i) {
                transport.recv(test::buffer(data), 0, i);
                CHECK(std::count(data.begin(), data.end(), 1) == 200'000);
            }
        });
    }
}

TEST_CASE("one rank needs no store and makes no connections") {
    TcpTransport alone{dptk::TcpOptions{}};
    std::vector<double> data{3.0};
    alone.run({.verb = dptk::Verb::all_reduce, .input = test::buffer(data), .output = test::buffer(data)});
    const std::unique_ptr<dptk::Transport> copy = alone.duplicate();
    CHECK(data[0] == 3.0);
    CHECK_THROWS_WITH_AS(alone.send(test::buffer(data), 0, 0),
                         "rank 0 of 1: invalid peer 0: expected another rank", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(alone.send(test::buffer(data), dptk::any_rank, 0),
                         "rank 0: cannot send to rank -1 with the tag 0: expected 0 or more",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(TcpTransport({.rank = 2, .size = 2}),
                         "TCP: invalid rank 2 of 2: expected 0 to size - 1", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(TcpTransport({.rank = 1, .size = 2}),
                         "rank 1: TCP needs a store (TcpOptions::store) to connect ranks",
                         dptk::ArgumentError);
}

TEST_CASE("transports that are created and destroyed leak no descriptors and no threads") {
    const auto create_and_destroy = [] {
        test::on_transports({.size = 2}, [](TcpTransport& transport) {
            std::vector<int> one(1);
            const std::unique_ptr<dptk::Transport> copy = transport.duplicate();
            if (transport.rank() == 0)
                copy->start_message({dptk::Verb::send, test::buffer(one), 1, 0})->wait(60s);
            if (transport.rank() == 1) copy->recv(test::buffer(one), 0, 0);
        });
    };
    create_and_destroy();
    const std::size_t descriptors = test::entries_of("/proc/self/fd");
    const std::size_t threads = test::entries_of("/proc/self/task");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) create_and_destroy();
    CHECK(dptk::detail::ProgramEnd::get().wait().well);
    CHECK(std::chrono::steady_clock::now() - begin < 25s);  // no connection has waited for its time limit
    const auto nothing_left = [&] {
        return test::entries_of("/proc/self/fd") <= descriptors &&
               test::entries_of("/proc/self/task") <= threads;
    };
    for (int i = 0; i < 600 && !nothing_left(); ++i) std::this_thread::sleep_for(50ms);
    CHECK(nothing_left());
}
