// Tests specific to the Gloo transport: large sums, messages, duplicates, options.
#include <dptk/comm/communicator.hpp>
#include <dptk/comm/engine/engine.hpp>
#include <dptk/control/net/interface.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support.hpp"

namespace {

using dptk::Buffer;
using dptk::GlooTransport;
using dptk::ReduceOp;

}  // namespace

TEST_CASE("all ranks get the same bits from large sums that round") {
    for (const int ranks : {2, 3, 4}) {
        std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
        test::on_ranks({.size = ranks}, [&](dptk::Transport& transport) {
            std::vector<float> data(1'500'001);
            for (std::size_t i = 0; i < data.size(); ++i)
                data[i] =
                    1.0F / static_cast<float>(i + static_cast<std::size_t>(transport.rank()) * 7919 + 1);
            test::all_reduce(transport, test::buffer(data), ReduceOp::avg);
            double worst = 0;
            for (std::size_t i = 0; i < data.size(); ++i) {
                double mean = 0;
                for (int rank = 0; rank < ranks; ++rank)
                    mean += 1.0F / static_cast<float>(i + static_cast<std::size_t>(rank) * 7919 + 1);
                mean /= ranks;
                worst = std::max(worst, std::abs(data[i] - mean) / mean);
            }
            CHECK(worst < 1e-6);
            results[static_cast<std::size_t>(transport.rank())] = std::move(data);
        });
        for (const auto& result : results)
            CHECK(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("ranks without elements take part in calls whose counts differ") {
    test::on_ranks({.size = 3}, [&](dptk::Transport& transport) {
        const std::vector<std::size_t> counts{2, 0, 3};
        std::vector<int> own(counts[static_cast<std::size_t>(transport.rank())], transport.rank());
        std::vector<int> all(5, -1);
        transport.run({.verb = dptk::Verb::all_gather_uneven,
                       .input = test::buffer(own),
                       .output = test::buffer(all),
                       .counts = counts});
        CHECK(all == std::vector{0, 0, 2, 2, 2});
        test::barrier(transport);
    });
}

TEST_CASE("no rank leaves a barrier before all have come") {
    for (const int ranks : {1, 2, 3, 4}) {
        std::atomic<int> arrived = 0;
        test::on_ranks({.size = ranks}, [&](dptk::Transport& transport) {
            for (int round = 1; round <= 50; ++round) {
                ++arrived;
                test::barrier(transport);
                CHECK(arrived >= round * ranks);
            }
        });
    }
}

TEST_CASE("messages are matched by sender and tag, whatever the order in which they are received") {
    constexpr int tags[] = {0, 7, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()};
    constexpr std::size_t counts[] = {0, 1, 3, 70'000, 500'000};
    for (const int ranks : {2, 3, 4}) {
        test::on_ranks({.size = ranks}, [&](dptk::Transport& transport) {
            if (transport.rank() != 0) {
                std::vector<std::jthread> senders;  // a send blocks until its message is received
                for (std::size_t i = 0; i < std::size(tags); ++i) {
                    senders.emplace_back([&, i] {
                        std::vector<int> data(counts[i], 100 * transport.rank() + static_cast<int>(i));
                        transport.send(test::buffer(data), 0, tags[i]);
                    });
                }
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

TEST_CASE("messages with the same tag come in the order in which they were sent") {
    test::on_ranks({.size = 2}, [&](dptk::Transport& transport) {
        for (int i = 0; i < 100; ++i) {
            std::vector<int> data{transport.rank() == 0 ? i : -1};
            if (transport.rank() == 0) transport.send(test::buffer(data), 1, 3);
            if (transport.rank() == 1) transport.recv(test::buffer(data), 0, 3);
            CHECK(data[0] == i);
        }
    });
}

TEST_CASE("collectives, messages and duplicates do not interfere, whichever thread calls them") {
    for (const int ranks : {2, 3}) {
        test::on_ranks({.size = ranks}, [&](dptk::Transport& transport) {
            const std::unique_ptr<dptk::Transport> first = transport.duplicate();
            const std::unique_ptr<dptk::Transport> second = first->duplicate();
            const auto work = [&](dptk::Transport& on, int scale) {
                std::size_t wrong = 0;
                for (int round = 0; round < 40; ++round) {
                    std::vector<std::int64_t> data(static_cast<std::size_t>(1 + round * 500),
                                                   scale * (on.rank() + round));
                    test::all_reduce(on, test::buffer(data), ReduceOp::sum);
                    const std::int64_t expected = scale * (ranks * (ranks - 1) / 2 + ranks * round);
                    wrong += data.front() != expected || data.back() != expected ? 1U : 0U;
                    std::vector<int> message{scale};
                    if (on.rank() == 0) on.send(test::buffer(message), 1, round % 2);
                    if (on.rank() == 1) {
                        message[0] = 0;
                        on.recv(test::buffer(message), 0, round % 2);
                        wrong += message[0] != scale ? 1U : 0U;
                    }
                }
                CHECK(wrong == 0);
            };
            {
                const std::jthread one([&] { work(*first, 1); });
                const std::jthread two([&] { work(*second, 100); });
                work(transport, 10'000);
            }
            first->leave();
            second->leave();
        });
    }
}

TEST_CASE("a communicator over Gloo works in the background and closes in any order") {
    const test::Job job{.size = 3};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            auto main = std::make_unique<dptk::ProcessGroup>(dptk::detail::Engine::open(job.connect(rank)));
            auto other = std::make_unique<dptk::ProcessGroup>(main->duplicate());
            std::vector<float> data(10'000, 1.0F);
            auto work = other->all_reduce_async(data);
            CHECK(main->all_reduce_value(1) == 3);
            work.wait();
            CHECK(data[9'999] == 3.0F);
            (rank == 1 ? main : other).reset();
        });
    }
    threads.clear();
    CHECK(!job.job_state->failed());
}

TEST_CASE("one rank needs no store and makes no connections") {
    GlooTransport alone({});
    std::vector<double> data{3.0};
    test::all_reduce(alone, test::buffer(data), ReduceOp::avg);
    test::broadcast(alone, test::buffer(data), 0);
    test::barrier(alone);
    const std::unique_ptr<dptk::Transport> copy = alone.duplicate();
    copy->leave();
    alone.leave();
    CHECK(data[0] == 3.0);
    CHECK(!test::message_of<dptk::ArgumentError>([&] { alone.send(test::buffer(data), 0, 0); }).empty());
}

TEST_CASE("invalid options are an ArgumentError") {
    using test::contains;
    const auto message = [](dptk::GlooOptions options) {
        return test::message_of<dptk::ArgumentError>([&] { GlooTransport transport(std::move(options)); });
    };
    const auto store = std::make_shared<dptk::InProcessStore>();
    CHECK(contains(message({.rank = 2, .size = 2, .store = store}), "invalid rank 2 of 2"));
    CHECK(contains(message({.rank = 1, .size = 2}), "rank 1: Gloo needs a store"));
    const std::string wrong = message({.size = 2, .store = store, .interface = "nowhere0"});
    CHECK(contains(wrong, "\"nowhere0\" is not a network interface, host name or address of"));
    CHECK(contains(wrong, "lo (127.0.0.1)"));
}

TEST_CASE("an interface may be given by its name, a host name, an address, or not at all") {
    using dptk::detail::choose_address;
    CHECK(choose_address("lo") == "127.0.0.1");
    CHECK(choose_address("localhost") == "127.0.0.1");
    CHECK(choose_address("127.0.0.1") == "127.0.0.1");
    CHECK(choose_address("127.0.1.1") == "127.0.0.1");
    test::Job job{.size = 2};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            dptk::GlooOptions options = job.options(rank);
            options.interface = "";
            GlooTransport transport(std::move(options));
            test::barrier(transport);
            transport.leave();
        });
    }
}

TEST_CASE("the default is the only address that is not a loopback address, or else a loopback address") {
    using dptk::detail::default_address;
    CHECK(default_address({{"lo", "127.0.0.1", AF_INET, true}, {"eth0", "192.0.2.1", AF_INET, false}}) ==
          "192.0.2.1");
    CHECK(default_address({{"lo", "127.0.0.1", AF_INET, true},
                           {"eth0", "192.0.2.1", AF_INET, false},
                           {"eth1", "192.0.2.2", AF_INET, false}}) == "127.0.0.1");
    CHECK(default_address({}) == "127.0.0.1");
}
