// Messages of unknown length: probe, and recv into an empty vector.
#include <doctest/doctest.h>
#include <dptk/comm/agreement.hpp>
#include <dptk/comm/thread.hpp>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"
#include "support/uneven_lists.hpp"

namespace {

using dptk::ProcessGroup;

}  // namespace

TEST_CASE("an empty vector receives a message of any length") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        for (int round = 0; round < 12; ++round) {
            const int from = round % group.size();
            const int to = (round + 1) % group.size();
            if (group.rank() == from) group.send(test::list_of(from, to, round), to, round);
            if (group.rank() == to) {
                std::vector<double> received;
                CHECK(group.recv(received, round % 2 == 0 ? from : dptk::any_rank, round) == from);
                CHECK(received == test::list_of(from, to, round));
            }
        }
    });
}

TEST_CASE("probe finds sender, tag and size of the next message, and leaves it to be received") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        constexpr int rounds = 5;
        if (group.rank() > 0) {
            for (int round = 0; round < rounds; ++round)
                group.send(test::list_of(group.rank(), 0, round), 0, 100 * group.rank() + round);
            return group.barrier();
        }
        std::vector<int> next(static_cast<std::size_t>(group.size()));
        for (int i = 0; i < rounds * (group.size() - 1); ++i) {
            const dptk::MessageInfo message = group.probe();
            const dptk::MessageInfo again = group.probe(message.source, message.tag);
            CHECK(again.source == message.source);
            CHECK(again.bytes == message.bytes);
            int& round = next[static_cast<std::size_t>(message.source)];
            CHECK(message.tag == 100 * message.source + round);
            std::vector<double> received(message.count<double>());
            CHECK(group.recv(received, message.source, message.tag) == message.source);
            CHECK(received == test::list_of(message.source, 0, round++));
        }
        CHECK(!group.try_probe());
        group.barrier();
    });
}

TEST_CASE("messages with another tag or of another rank do not hide the one that is probed for") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        const int last = group.size() - 1;
        if (group.rank() == last) {
            const std::vector<double> long_one = test::list_of(1, 2, 3), short_one = {7};
            dptk::Work first = group.send_async(long_one, 0, 1);
            dptk::Work second = group.send_async(short_one, 0, 2);
            first.wait();
            second.wait();
        }
        if (group.rank() == 0) {
            CHECK(group.probe(last, 2).bytes == sizeof(double));
            CHECK(group.probe(last).tag == 1);
            std::vector<double> received;
            group.recv(received, last, 2);
            CHECK(received == std::vector<double>{7});
            received.clear();
            group.recv(received, dptk::any_rank, 1);
            CHECK(received == test::list_of(1, 2, 3));
        }
        group.barrier();
    });
}

TEST_CASE("try_probe does not block, and finds a message soon after it was sent") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        if (group.rank() == 0) {
            CHECK(!group.try_probe(1, 3));
            group.send(std::vector<int>{1}, 1, 9);
            std::optional<dptk::MessageInfo> found;
            while (!found) found = group.try_probe(1, 3);
            std::vector<int> received(found->count<int>());
            group.recv(received, 1, 3);
            CHECK(received == std::vector<int>{4, 5});
        }
        if (group.rank() == 1) {
            std::vector<int> go(1);
            group.recv(go, 0, 9);
            group.send(std::vector<int>{4, 5}, 0, 3);
        }
        group.barrier();
    });
}

TEST_CASE("a started receive gets the message that it waits for, before probe and beside it") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        if (group.rank() == 0) {
            std::vector<double> first(2), second;
            dptk::Work waiting = group.recv_async(first, 1, 4);
            group.send(std::vector<int>{1}, 1, 9);
            const dptk::MessageInfo message = group.probe(1, 4);  // the second message
            CHECK(message.count<double>() == 3);
            group.recv(second, 1, 4);
            waiting.wait();
            CHECK(first == std::vector<double>{1, 2});
            CHECK(second == std::vector<double>{3, 4, 5});
        }
        if (group.rank() == 1) {
            std::vector<int> go(1);
            group.recv(go, 0, 9);
            group.send(std::vector<double>{1, 2}, 0, 4);
            group.send(std::vector<double>{3, 4, 5}, 0, 4);
        }
        group.barrier();
    });
}

TEST_CASE(
    "a message that is no whole number of elements, and wrong arguments, are errors; the group stays "
    "usable") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) {
            CHECK_THROWS_AS(static_cast<void>(group.probe()), dptk::ArgumentError);
            return;
        }
        if (group.rank() == 1) group.send(std::vector<std::uint8_t>{1, 2, 3}, 0, 6);
        if (group.rank() == 0) {
            std::vector<float> wrong;
            CHECK_THROWS_WITH_AS(group.recv(wrong, 1, 6),
                                 "rank 1 sends 3 bytes, which is not a multiple of the 4 bytes of an element",
                                 dptk::MismatchError);
            std::vector<std::uint8_t> right;
            group.recv(right, 1, 6);
            CHECK(right.size() == 3);
            CHECK_THROWS_AS(static_cast<void>(group.probe(group.size())), dptk::ArgumentError);
            CHECK_THROWS_AS(static_cast<void>(group.try_probe(0)), dptk::ArgumentError);
            CHECK_THROWS_AS(static_cast<void>(group.try_probe(1, dptk::max_tag + 1)), dptk::ArgumentError);
        }
        group.barrier();
    });
}

TEST_CASE_TEMPLATE("messages of unknown length have every element type", T, float, double, dptk::float16,
                   dptk::bfloat16, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                   std::uint32_t, std::int64_t, std::uint64_t, std::complex<float>, std::complex<double>) {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        for (const std::size_t count : {0U, 1U, 7U, 1000U}) {
            const std::vector<T> sent(count, T(static_cast<float>(count % 100)));
            dptk::Work sending = group.send_async(sent, next, 5);
            CHECK(group.probe(previous, 5).template count<T>() == count);
            std::vector<T> received;
            group.recv(received, previous, 5);
            sending.wait();
            CHECK(received.size() == count);
            CHECK(std::equal(sent.begin(), sent.end(), received.begin(), received.end()));
        }
    });
}

TEST_CASE(
    "if the sender fails after its message was found, recv throws PeerLostError, which names the sender") {
    if (test::is_launched()) return;  // start.killed_in_verbs kills launched ranks
    std::atomic<bool> has_probed = false;
    std::string error;
    const auto run = [&](dptk::ProcessGroup& group) {
        if (group.rank() == 1) {
            const std::vector<double> data(1000);
            dptk::Work sent = group.send_async(data, 0);
            while (!has_probed) std::this_thread::yield();
            throw std::runtime_error("out of data");
        }
        CHECK(group.probe(1).count<double>() == 1000);
        has_probed = true;
        try {
            while (group.try_probe(1)) std::this_thread::yield();
            std::vector<double> received;
            group.recv(received, 1);
        } catch (const dptk::PeerLostError& lost) {
            error = lost.what();
        }
    };
    CHECK_THROWS_WITH(dptk::launch_threads(2, run), "out of data");
    CHECK(test::contains(error, "rank 1"));
}
