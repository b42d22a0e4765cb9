// Membership: processes, here threads, that form the generations of an elastic job.
#include <doctest/doctest.h>
#include <dptk/control/elastic/membership.hpp>
#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using dptk::detail::Generation;
using dptk::detail::MemberId;
using dptk::detail::Membership;
using dptk::detail::MembershipMonitor;

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
void in_threads(int count, const Function& function) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&function, i] { function(i); });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("members join generations one after the other, without those that have ended") {
    const MonitoredStore job({.first_size = 3});
    std::vector<std::unique_ptr<Membership>> members;
    for (int i = 0; i < 3; ++i) members.push_back(job.member());
    CHECK_FALSE(members[0]->has_begun());
    std::vector<Generation> generations(3);
    in_threads(3, [&](int i) {
        generations[i] = members[i]->join();
        members[i]->note_formed();
    });
    const std::vector<MemberId> all{members[0]->id(), members[1]->id(), members[2]->id()};
    for (const Generation& one : generations) CHECK(one == Generation{1, all});
    CHECK(members[0]->has_begun());

    members.erase(members.begin() + 1);
    in_threads(2, [&](int i) { generations[i] = members[i]->join(); });
    for (int i = 0; i < 2; ++i) CHECK(generations[i] == Generation{2, {all[0], all[2]}});
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
