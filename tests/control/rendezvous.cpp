// Processes that meet in a store, as threads.
#include <doctest/doctest.h>
#include <dptk/control/launch/detail/rendezvous.hpp>
#include <dptk/control/net/host.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// What each of the processes gets to hear: the error's text, or "met".
std::vector<std::string> meet(const std::vector<dptk::detail::RendezvousOptions>& processes) {
    const auto store = std::make_shared<dptk::InProcessStore>();
    std::vector<std::string> heard(processes.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < processes.size(); ++i) {
        threads.emplace_back([&, i] {
            try {
                const dptk::detail::Peers peers = dptk::detail::rendezvous(*store->clone(), processes[i]);
                const bool complete =
                    peers.labels.size() == static_cast<std::size_t>(processes[i].world_size);
                const auto place = dptk::detail::local_place(peers.hosts, processes[i].rank);
                const bool local = place.rank == processes[i].rank && place.size == processes[i].world_size;
                heard[i] = complete && local ? "met" : "incomplete";
            } catch (const dptk::Error& error) {
                heard[i] = error.agreed() ? error.what() : std::string("not agreed: ") + error.what();
            }
        });
    }
    threads.clear();
    return heard;
}

}  // namespace

TEST_CASE("all ranks meet, in whatever order they come") {
    for (const auto& heard :
         meet({{.rank = 2, .world_size = 3}, {.rank = 0, .world_size = 3}, {.rank = 1, .world_size = 3}})) {
        CHECK(heard == "met");
    }
    CHECK(meet({{.rank = 0, .world_size = 1}}) == std::vector<std::string>{"met"});
}

TEST_CASE("missing ranks are named to all that have come") {
    const auto heard = meet({{.rank = 0, .world_size = 4, .timeout = 2s, .where = "here"},
                             {.rank = 2, .world_size = 4, .timeout = 2s, .where = "here"}});
    CHECK(heard[0] == "rank 0: waited 2 s at here for ranks 1, 3 of 4, which did not come");
    CHECK(heard[1] == "rank 2: waited 2 s at here for ranks 1, 3 of 4, which did not come");
}

TEST_CASE("many missing ranks are counted") {
    const auto heard = meet({{.rank = 0, .world_size = 1000, .timeout = 100ms}});
    CHECK(heard[0].find("14, 15, 16 and 983 more of 1000") != std::string::npos);
}

TEST_CASE("a missing rank 0 is named, too") {
    const auto heard = meet({{.rank = 1, .world_size = 2, .timeout = 100ms, .where = "here"}});
    CHECK(heard[0] == "rank 1: waited 100 ms at here for rank 0, which did not come");
}

TEST_CASE("what does not fit together is told to all") {
    const auto twice =
        meet({{.rank = 0, .world_size = 3}, {.rank = 1, .world_size = 3}, {.rank = 1, .world_size = 3}});
    for (const auto& text : twice) CHECK(text.find("two processes have rank 1") != std::string::npos);
    const auto sizes = meet({{.rank = 0, .world_size = 2}, {.rank = 1, .world_size = 3}});
    for (const auto& text : sizes)
        CHECK(text.find("disagree about the world size: rank 0") != std::string::npos);
}

TEST_CASE(
    "a second rank 0 that does not lead, and so may serve the store, stays until the others have read") {
    dptk::InProcessStore store;
    store.add("arrivals", 2);  // the one that leads, and another one
    store.set("leader", "1");
    store.set("verdict", "mismatch\ntwo processes have rank 0");
    const std::jthread other([copy = store.clone()] {
        std::this_thread::sleep_for(300ms);
        copy->add("readers", 1);
    });
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::detail::rendezvous(store, {.rank = 0, .world_size = 3})),
                         "rank 0: two processes have rank 0", dptk::MismatchError);
    CHECK(store.find("readers") == "2");
}
