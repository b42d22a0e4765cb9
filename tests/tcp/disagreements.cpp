// docs/errors.md: what happens over TCP if the calls of the ranks differ.
#include "support/disagreements.hpp"

#include <dptk/comm/shm.hpp>

#include <atomic>

#include "support.hpp"

using namespace std::chrono_literals;

TEST_CASE("docs/errors.md: calls that differ over TCP end the job with an error that names them") {
    for (const int ranks : {2, 3}) {
        for (const test::DisagreementCell& cell : test::disagreement_cells("TCP")) {
            CAPTURE(ranks);
            CAPTURE(dptk::verb_name(cell.verb));
            CAPTURE(test::name_of(cell.kind));
            REQUIRE(cell.expected == "ends");
            const test::Alarm alarm(60);
            std::atomic<int> ended = 0;
            test::on_groups({.size = ranks, .heartbeat_timeout = 600ms}, [&](dptk::ProcessGroup& group) {
                const std::string message = test::message_of<dptk::Error>([&] {
                    test::make_differing_calls(group, cell.verb, cell.kind);
                    group.barrier();
                    group.barrier();
                });
                CHECK(test::contains(message, "calls differ between ranks: rank "));
                ++ended;
                while (ended < ranks) std::this_thread::sleep_for(1ms);
            });
        }
    }
}

TEST_CASE("calls that differ between hosts are named as the program has made them") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 4};
    std::vector<std::string> messages(4);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            const bool is_first_host = rank < 2;
            dptk::ProcessGroup group = dptk::ShmCommunicator(dptk::ShmTransport(
                dptk::TcpTransport(job.options(rank)), dptk::ShmOptions{.host = is_first_host ? "a" : "b"},
                {.heartbeat_timeout = job.heartbeat_timeout, .store = job.store}));
            std::vector<float> data(is_first_host ? 1000 : 2000);
            messages[static_cast<std::size_t>(rank)] =
                test::message_of<dptk::Error>([&] { group.all_reduce(data); });
        });
    }
    threads.clear();
    for (const std::string& message : messages) {
        CAPTURE(message);
        CHECK(test::contains(message, "calls differ between ranks: rank "));
        CHECK(test::contains(message, "calls all_reduce(sum, 1000 x f32)"));
        CHECK(test::contains(message, "calls all_reduce(sum, 2000 x f32)"));
        // Ranks 0 and 2, or 1 and 3, are connected.
        CHECK((test::contains(message, "rank 2 calls") || test::contains(message, "rank 3 calls")));
    }
}
