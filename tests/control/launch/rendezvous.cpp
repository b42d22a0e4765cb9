// Rendezvous of processes through a store. Threads stand for the processes.
#include <doctest/doctest.h>
#include <dptk/control/launch/detail/rendezvous.hpp>
#include <dptk/control/net/host.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Returns the result of each process: the text of its error, or "complete".
std::vector<std::string> meet(const std::vector<dptk::detail::RendezvousOptions>& processes) {
    const auto store = std::make_shared<dptk::InProcessStore>();
    std::vector<std::string> result(processes.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < processes.size(); ++i) {
        threads.emplace_back([&, i] {
            try {
                const dptk::detail::Peers peers = dptk::detail::rendezvous(*store->clone(), processes[i]);
                const bool complete =
                    peers.labels.size() == static_cast<std::size_t>(processes[i].world_size);
                const auto place = dptk::detail::local_place(peers.hosts, processes[i].rank);
                const bool local = place.rank == processes[i].rank && place.size == processes[i].world_size;
                result[i] = complete && local ? "complete" : "incomplete";
            } catch (const dptk::Error& error) {
                result[i] = error.agreed() ? error.what() : std::string("not agreed: ") + error.what();
            }
        });
    }
    threads.clear();
    return result;
}

/// A store whose client has a connection with these addresses.
class ConnectedStore final : public dptk::Store {
  public:
    ConnectedStore(std::shared_ptr<dptk::Store> inner, dptk::StoreConnection connection)
        : inner_(std::move(inner)), connection_(std::move(connection)) {}

    void set(std::string_view key, std::string_view value) override { inner_->set(key, value); }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        return inner_->get(key, timeout);
    }
    std::optional<std::string> find(std::string_view key) override { return inner_->find(key); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return inner_->add(key, amount); }
    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        return inner_->compare_and_set(key, expected, desired);
    }
    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        inner_->wait(keys, timeout);
    }
    bool erase(std::string_view key) override { return inner_->erase(key); }
    void set_last_will(std::string_view key, std::string_view value) override {
        inner_->set_last_will(key, value);
    }
    std::shared_ptr<dptk::Store> clone() override { return inner_->clone(); }
    dptk::StoreConnection connection() override { return connection_; }

  private:
    std::shared_ptr<dptk::Store> inner_;
    dptk::StoreConnection connection_;
};

}  // namespace

TEST_CASE("the address of a rank is that of its connection to the store") {
    // Ranks 0 and 1 are on the host of the store.
    const std::vector<dptk::StoreConnection> connections = {
        {}, {"127.0.0.1", "127.0.1.1"}, {"10.0.0.2", "10.0.0.1"}, {"fd00::3", "fd00::1"}};
    const std::vector<std::string> expected = {"10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::3"};
    const auto shared = std::make_shared<dptk::InProcessStore>();
    std::vector<std::jthread> threads;
    std::mutex mutex;
    for (int rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] {
            ConnectedStore store(shared->clone(), connections[static_cast<std::size_t>(rank)]);
            const dptk::detail::Peers peers =
                dptk::detail::rendezvous(store, {.rank = rank, .world_size = 4});
            const std::lock_guard lock(mutex);
            CHECK(peers.addresses == expected);
        });
    }
}

TEST_CASE("the rendezvous completes, in whatever order the ranks connect") {
    for (const auto& result :
         meet({{.rank = 2, .world_size = 3}, {.rank = 0, .world_size = 3}, {.rank = 1, .world_size = 3}})) {
        CHECK(result == "complete");
    }
    CHECK(meet({{.rank = 0, .world_size = 1}}) == std::vector<std::string>{"complete"});
}

TEST_CASE("missing ranks are named on all ranks that have connected") {
    const auto result = meet({{.rank = 0, .world_size = 4, .timeout = 2s, .where = "here"},
                              {.rank = 2, .world_size = 4, .timeout = 2s, .where = "here"}});
    CHECK(result[0] == "rank 0: waited 2 s at here for ranks 1, 3 of 4, which did not connect");
    CHECK(result[1] == "rank 2: waited 2 s at here for ranks 1, 3 of 4, which did not connect");
}

TEST_CASE("many missing ranks are counted") {
    const auto result = meet({{.rank = 0, .world_size = 1000, .timeout = 100ms}});
    CHECK(result[0].find("14, 15, 16 and 983 more of 1000") != std::string::npos);
}

TEST_CASE("a rendezvous that is ended throws the cause on all ranks") {
    const auto store = std::make_shared<dptk::InProcessStore>();
    std::vector<std::string> result(2);
    std::vector<std::jthread> threads;
    for (const int rank : {0, 1}) {
        threads.emplace_back([&, rank] {
            try {
                static_cast<void>(dptk::detail::rendezvous(*store->clone(), {rank, 3, 60s, "here"}));
            } catch (const dptk::PeerLostError& error) {
                result[static_cast<std::size_t>(rank)] = error.what();
            }
        });
    }
    static_cast<void>(store->get("peer/2", 10s));
    dptk::detail::end_rendezvous(*store, "rank 2 was killed");
    threads.clear();
    CHECK(result == std::vector<std::string>{"rank 0: rank 2 was killed", "rank 1: rank 2 was killed"});
}

TEST_CASE("a missing rank 0 is named") {
    const auto result = meet({{.rank = 1, .world_size = 2, .timeout = 100ms, .where = "here"}});
    CHECK(result[0] == "rank 1: waited 100 ms at here for rank 0, which did not connect");
}

TEST_CASE("mismatched settings are reported on all ranks") {
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
