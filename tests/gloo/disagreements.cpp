// docs/errors.md: what happens over Gloo if the calls of the ranks differ.
#include "support/disagreements.hpp"

#include <dptk/comm/process_group.hpp>
#include <dptk/control/health/heartbeat.hpp>

#include <atomic>

#include "support.hpp"

using namespace std::chrono_literals;

TEST_CASE(
    "docs/errors.md: calls that differ over Gloo exchange no data, and end the job with an error that names "
    "them") {
    constexpr int ranks = 3;
    for (const test::DisagreementCell& cell : test::disagreement_cells("Gloo")) {
        CAPTURE(dptk::verb_name(cell.verb));
        CAPTURE(test::name_of(cell.kind));
        REQUIRE(cell.expected == "ends");
        const test::Alarm alarm(60);
        const test::Job job{.size = ranks};
        std::atomic<int> ended = 0;
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
            threads.emplace_back([&, rank] {
                const auto control = dptk::detail::join_control_plane(
                    {.rank = rank, .size = ranks, .store = job.store, .timeout = 30s},
                    std::make_shared<dptk::detail::JobState>(), 200ms);
                const std::string message = test::message_of<dptk::PeerLostError>([&] {
                    dptk::ProcessGroup group = dptk::ProcessGroup(dptk::detail::Engine::open(
                        dptk::detail::GlooFactory::make(job.options(rank), control)));
                    test::make_differing_calls(group, cell.verb, cell.kind);
                    group.barrier();
                });
                CHECK(test::contains(message, "calls differ between ranks: rank "));
                if (!message.empty()) ++ended;
            });
        }
        threads.clear();
        CHECK(ended == ranks);
    }
}
