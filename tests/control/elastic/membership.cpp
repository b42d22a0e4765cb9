// Membership: processes, here threads, that form the generations of an elastic job.
#include <doctest/doctest.h>
#include <dptk/control/elastic/membership.hpp>
#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/elastic/membership_server.hpp>
#include <dptk/control/store/in_process_store.hpp>
#include <dptk/control/store/tcp_store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using dptk::detail::Generation;
using dptk::detail::MemberId;
using dptk::detail::Membership;
using dptk::detail::MembershipMonitor;
using dptk::detail::MembershipOptions;
using dptk::detail::MembershipRules;
using dptk::detail::MembershipServer;

/// A store with a thread that forms the generations of its job.
class MonitoredStore {
  public:
    explicit MonitoredStore(const dptk::detail::MembershipRules& rules)
        : thread_([this, rules] {
              MembershipMonitor monitor(rules, MembershipMonitor::clock::now());
              while (!has_ended_) {
                  monitor.look(*store_, MembershipMonitor::clock::now());
                  std::this_thread::sleep_for(1ms);
              }
          }) {}

    ~MonitoredStore() {
        has_ended_ = true;
        thread_.join();
    }

    /// A new member, which comes now.
    [[nodiscard]] std::unique_ptr<Membership> member(
        std::chrono::milliseconds heartbeat_timeout = 10s) const {
        return std::make_unique<Membership>(dptk::detail::MembershipOptions{
            .store = store_->clone(), .heartbeat_timeout = heartbeat_timeout});
    }

    [[nodiscard]] const std::shared_ptr<dptk::InProcessStore>& store() const { return store_; }

  private:
    std::shared_ptr<dptk::InProcessStore> store_ = std::make_shared<dptk::InProcessStore>();
    std::atomic<bool> has_ended_ = false;
    std::thread thread_;
};

/// Calls function(i) in `count` threads.
template <class Function>
void in_threads(std::size_t count, const Function& function) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&function, i] { function(i); });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("members join generations one after the other, without those that have ended") {
    const MonitoredStore job({.first_size = 3});
    std::vector<std::unique_ptr<Membership>> members;
    for (int i = 0; i < 3; ++i) members.push_back(job.member());
    CHECK_FALSE(members[0]->has_begun());
    std::vector<Generation> generations(3);
    in_threads(3, [&](std::size_t i) {
        generations[i] = members[i]->join();
        members[i]->note_formed();
    });
    const std::vector<MemberId> all{members[0]->id(), members[1]->id(), members[2]->id()};
    for (const Generation& one : generations) CHECK(one == Generation{1, all});
    CHECK(members[0]->has_begun());

    members.erase(members.begin() + 1);
    in_threads(2, [&](std::size_t i) { generations[i] = members[i]->join(); });
    for (std::size_t i = 0; i < 2; ++i) CHECK(generations[i] == Generation{2, {all[0], all[2]}});
}

TEST_CASE("a member that comes later joins when the others form the next generation") {
    const MonitoredStore job({.first_size = 1});
    const auto first = job.member();
    first->join();
    first->note_formed();
    const auto later = job.member();
    Generation joined;
    std::thread newcomer([&] { joined = later->join(); });
    // As the background threads of a group do, waits until its generation has ended.
    CHECK(first->store_of_generation()->get("abort", 10s) == "a new rank joins");
    CHECK(first->join() == Generation{2, {first->id(), later->id()}});
    newcomer.join();
    CHECK(joined == first->generation());
}

TEST_CASE("a member whose job has ended throws why") {
    const MonitoredStore job({.first_size = 2, .timeout = 50ms});
    const auto member = job.member();
    CHECK_THROWS_WITH_AS(member->join(), "the elastic job has ended: 1 of 2 ranks have come, for 50 ms",
                         dptk::PeerLostError);
}

TEST_CASE("members that have lost the first store continue with the second one") {
    std::optional<MembershipServer> served(std::in_place, dptk::TcpStoreServerOptions{},
                                           MembershipRules{.first_size = 3});
    MembershipServer second({}, {.is_second = true});
    const auto connect_to = [](std::uint16_t port) { return dptk::TcpStore::connect({"127.0.0.1", port}); };
    served->local()->set("second", "the second store");
    std::vector<std::unique_ptr<Membership>> members;
    for (int i = 0; i < 3; ++i)
        members.push_back(std::make_unique<Membership>(MembershipOptions{
            .store = connect_to(served->port()), .open_second = [&](const std::string& address) {
                CHECK(address == "the second store");
                return connect_to(second.port());
            }}));
    in_threads(3, [&](std::size_t i) {
        members[i]->join();
        members[i]->note_formed();
    });
    const Generation before = members[0]->generation();
    REQUIRE(before.members.size() == 3);
    served.reset();
    members[0]->note_formed();  // the loss is no error here: join() finds it
    in_threads(3, [&](std::size_t i) {
        CHECK(members[i]->join().number == before.number + 1);
        members[i]->note_formed();
    });
    for (const auto& member : members) CHECK(member->generation().members == before.members);
    CHECK(members[0]->store_of_generation()->get("formed", 10s).empty());
    members.pop_back();
    in_threads(2, [&](std::size_t i) { members[i]->join(); });
    CHECK(members[1]->generation().members == std::vector{members[0]->id(), members[1]->id()});
}

namespace {

/// A store whose clones are lost when the test says so, as if their connections had been cut.
class StoreWithLostClones final : public dptk::Store {
  public:
    explicit StoreWithLostClones(std::shared_ptr<dptk::Store> inner,
                                 std::shared_ptr<std::atomic<bool>> are_lost = nullptr)
        : inner_(std::move(inner)), are_lost_(std::move(are_lost)) {}

    void lose_clones() { *clones_are_lost_ = true; }

    void set(std::string_view key, std::string_view value) override { store().set(key, value); }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        return store().get(key, timeout);
    }
    std::optional<std::string> find(std::string_view key) override { return store().find(key); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return store().add(key, amount); }
    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        return store().compare_and_set(key, expected, desired);
    }
    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        store().wait(keys, timeout);
    }
    bool erase(std::string_view key) override { return store().erase(key); }
    void set_last_will(std::string_view key, std::string_view value) override {
        store().set_last_will(key, value);
    }
    std::shared_ptr<dptk::Store> clone() override {
        return std::make_shared<StoreWithLostClones>(inner_->clone(), clones_are_lost_);
    }

  private:
    dptk::Store& store() {
        if (are_lost_ && *are_lost_) throw dptk::PeerLostError("the connection was cut");
        return *inner_;
    }

    std::shared_ptr<dptk::Store> inner_;
    std::shared_ptr<std::atomic<bool>> are_lost_;
    std::shared_ptr<std::atomic<bool>> clones_are_lost_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

TEST_CASE("a member whose heartbeats have ended does not wait for ever") {
    const MonitoredStore job({.first_size = 2});
    const auto store = std::make_shared<StoreWithLostClones>(job.store()->clone());
    Membership member({.store = store, .heartbeat_timeout = 200ms});
    store->lose_clones();
    CHECK_THROWS_WITH_AS(member.join(), "the connection was cut", dptk::PeerLostError);
}

TEST_CASE("a member that has lost the first store, unlike the others, throws that") {
    std::optional<MembershipServer> first(std::in_place, dptk::TcpStoreServerOptions{},
                                          MembershipRules{.first_size = 2});
    MembershipServer second({}, {.is_second = true});
    first->local()->set("second", "the second store");
    second.local()->set("standby", "");
    std::vector<std::unique_ptr<Membership>> members;
    for (int i = 0; i < 2; ++i)
        members.push_back(std::make_unique<Membership>(
            MembershipOptions{.store = dptk::TcpStore::connect({"127.0.0.1", first->port()}),
                              .heartbeat_timeout = 500ms,
                              .open_second = [&](const std::string&) { return second.local(); }}));
    in_threads(2, [&](std::size_t i) { members[i]->join(); });
    first.reset();
    CHECK_THROWS_WITH_AS(members[1]->join(),
                         "this process has lost the store of the elastic job, but the others have not: it "
                         "continues without this process",
                         dptk::PeerLostError);
}

TEST_CASE("a member whose stores are both lost throws why") {
    std::optional<MembershipServer> first(std::in_place, dptk::TcpStoreServerOptions{}, MembershipRules{});
    std::string second;
    SUBCASE("there is no second one") {}
    SUBCASE("the second one cannot be reached") {
        second = "nowhere:1";
        first->local()->set("second", second);
    }
    Membership member({.store = dptk::TcpStore::connect({"127.0.0.1", first->port()}),
                       .open_second = [&](const std::string& address) -> std::shared_ptr<dptk::Store> {
                           throw dptk::TimeoutError("no reply from " + address);
                       }});
    member.join();
    first.reset();
    std::string error;
    try {
        member.join();
    } catch (const dptk::PeerLostError& lost) {
        error = lost.what();
    }
    CHECK(error.find("lost the store at 127.0.0.1:") == 0);
    CHECK((error.find(", and the second store of the job cannot be reached: no reply from nowhere:1") !=
           std::string::npos) == !second.empty());
}
