// docs/errors.md: what happens over TCP if the calls of the ranks differ.
#include "support/disagreements.hpp"

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
