// Membership monitor: forms the generations of an elastic job. The tests pass artificial times.
#include <doctest/doctest.h>
#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/health/failure_report.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

using dptk::detail::MembershipKeys;

namespace {

using namespace std::chrono_literals;
using dptk::detail::Generation;
using dptk::detail::MemberId;
using dptk::detail::MembershipMonitor;
using dptk::detail::NextGeneration;
using dptk::detail::Vote;

/// A job whose members write to the store as Membership does, when the test says so.
class ElasticJob {
  public:
    explicit ElasticJob(std::size_t first_size, int least_launchers = 0)
        : monitor_({.first_size = first_size,
                    .least_launchers = least_launchers,
                    .heartbeat_timeout = 10s,
                    .timeout = 60s},
                   now_) {
        for (std::size_t i = 0; i < first_size; ++i) start();
    }

    /// A new process comes.
    MemberId start() {
        const MemberId id = store_.add(MembershipKeys::members, 1);
        store_.set(MembershipKeys::arrival(store_.add(MembershipKeys::arrivals, 1)), std::to_string(id));
        votes_[id].member = id;
        beat(id);
        return id;
    }

    void beat(MemberId id) { store_.add(MembershipKeys::beat(id), 1); }

    void vote(MemberId id) {
        votes_[id].after = std::stoll(store_.find(MembershipKeys::latest).value_or("0"));
        write(id);
    }

    void vote(const std::vector<MemberId>& ids) {
        for (const MemberId id : ids) vote(id);
    }

    void end(MemberId id, std::string_view how = "was killed") { store_.set(MembershipKeys::ended(id), how); }

    void lose(MemberId id) { store_.set(MembershipKeys::lost(id), "lost"); }

    /// The members accept the generation, and complete it.
    void form() {
        accept();
        for (const MemberId id : generation().members) {
            votes_[id].note_formed(generation());
            write(id);
        }
        store_.set(MembershipKeys::generation(generation().number) + "/formed", "");
    }

    void accept() { accept(generation().members); }

    void accept(const std::vector<MemberId>& ids) {
        for (const MemberId id : ids) {
            Vote& vote = votes_[id];
            const auto next =
                NextGeneration::parse(store_.find(MembershipKeys::next(vote.after)).value_or(""));
            REQUIRE(next);
            REQUIRE(next->generation == generation());
            vote.accept(*next);
            write(id);
        }
    }

    /// Lets time pass in steps of 1 s, in which these members send a heartbeat.
    void pass(std::chrono::milliseconds time, const std::vector<MemberId>& beating) {
        for (auto step = 0ms; step < time; step += 1s) {
            now_ += std::min<std::chrono::milliseconds>(time, 1s);
            for (const MemberId id : beating) beat(id);
            look();
        }
    }

    void look() { monitor_.look(store_, now_); }

    /// Looks, and returns the members of the current generation; none while it is broken.
    std::vector<MemberId> members() {
        look();
        return monitor_.is_broken() ? std::vector<MemberId>() : generation().members;
    }

    [[nodiscard]] const Generation& generation() const { return monitor_.generation(); }
    [[nodiscard]] const std::string& over() const { return monitor_.over(); }

    /// Returns why a generation has ended.
    std::string cause(std::int64_t number) {
        return dptk::detail::parse_cause(
                   store_.find(MembershipKeys::generation(number) + "/abort").value_or("none"))
            .text;
    }

    dptk::Store& store() { return store_; }

  private:
    void write(MemberId id) { store_.set(MembershipKeys::vote(id), votes_[id].to_text()); }

    dptk::InProcessStore store_;
    MembershipMonitor::clock::time_point now_{};
    MembershipMonitor monitor_;
    std::map<MemberId, Vote> votes_;
};

using Members = std::vector<MemberId>;

}  // namespace

TEST_CASE("the first generation is formed when all of its members are ready") {
    ElasticJob job(3);
    job.vote({1, 2});
    CHECK(job.members().empty());
    job.vote(3);
    CHECK(job.members() == Members{1, 2, 3});
    CHECK(job.generation().number == 1);
}

TEST_CASE("a job without enough members ends after the timeout, and says why") {
    ElasticJob job(3);
    job.vote({1, 2});
    job.pass(59s, {1, 2, 3});
    CHECK(job.over().empty());
    job.pass(3s, {1, 2, 3});
    CHECK(job.over() == "2 of 3 ranks have come, for 60 s");
    CHECK(job.store().find(MembershipKeys::over) == job.over());
    CHECK(job.store().find(MembershipKeys::next(0)) == "");
}

TEST_CASE("members continue without one that has ended") {
    ElasticJob job(3);
    job.vote({1, 2, 3});
    job.look();
    job.form();
    job.end(2, "was killed by SIGKILL (9)");
    CHECK(job.members().empty());
    CHECK(job.cause(1) == "rank 1 was killed by SIGKILL (9)");
    job.vote(1);
    CHECK(job.members().empty());  // member 3 is alive, and may be in a computation
    job.vote(3);
    CHECK(job.members() == Members{1, 3});
}

TEST_CASE("members continue without one that sends no heartbeats, or has lost its connection") {
    ElasticJob job(4);
    job.vote({1, 2, 3, 4});
    job.look();
    job.form();
    job.pass(12s, {1, 2, 3});
    CHECK(job.cause(1) == "rank 3 has sent no heartbeat for 10 s");
    job.vote({1, 2, 3});
    CHECK(job.members() == Members{1, 2, 3});
    job.form();
    job.lose(1);
    CHECK(job.members().empty());
    CHECK(job.cause(2) == "rank 0 has lost its connection to the store");
    job.vote({2, 3});
    CHECK(job.members() == Members{2, 3});
    job.form();
    SUBCASE("which joins again when it is back") {
        job.beat(4);
        job.vote(4);
        CHECK(job.members() == Members{2, 3});
        job.pass(1s, {2, 3, 4});
        CHECK(job.cause(3) == "a new rank joins");
        job.vote({2, 3});
        CHECK(job.members() == Members{2, 3, 4});
    }
}

TEST_CASE("new members are let in together, once the generation is complete") {
    ElasticJob job(2);
    job.vote({1, 2});
    job.look();
    job.accept();
    job.start();
    job.start();
    job.vote({3, 4});
    job.pass(2s, {1, 2, 3, 4});
    CHECK(job.cause(1) == "none");
    job.form();
    CHECK(job.members().empty());
    CHECK(job.cause(1) == "2 new ranks join");
    job.vote({1, 2});
    CHECK(job.members() == Members{1, 2, 3, 4});
}

TEST_CASE("a member that has finished does not end its generation, but is not waited for") {
    ElasticJob job(3);
    job.vote({1, 2, 3});
    job.look();
    job.form();
    job.end(3, MembershipKeys::finished);
    CHECK(job.members() == Members{1, 2, 3});
    job.end(1);
    job.vote(2);
    CHECK(job.members() == Members{2});
}

TEST_CASE("a failure while a generation is formed leads to another one") {
    ElasticJob job(3);
    job.vote({1, 2, 3});
    job.look();
    SUBCASE("a member ends before it has read the generation") {
        job.accept({1, 2});
        job.end(3);
        CHECK(job.members().empty());
        CHECK(job.store().find("gen/1/verdict") == "lost\nrank 2 was killed");
    }
    SUBCASE("a member cannot connect with another one") {
        job.accept();
        job.vote(1);
        CHECK(job.members().empty());
        CHECK(job.cause(1) == "rank 0 has left the group");
        job.end(3);
    }
    job.vote({1, 2});
    CHECK(job.members() == Members{1, 2});
    CHECK(job.generation().number == 2);
}

TEST_CASE("a process that ends while it comes does not hide those that come later") {
    ElasticJob job(1);
    job.vote(1);
    job.look();
    job.form();
    job.store().add(MembershipKeys::arrivals, 1);
    const MemberId later = job.start();
    job.vote(later);
    job.pass(2s, {1, later});
    CHECK(job.cause(1) == "a new rank joins");
}

TEST_CASE("a job continues only as long as a member has its state") {
    ElasticJob job(2);
    job.vote({1, 2});
    job.look();
    job.form();
    job.start();
    job.end(1, "was killed");
    job.end(2);
    job.vote(3);
    CHECK(job.members().empty());
    CHECK(job.over() == "all ranks that had its state have ended");
}

TEST_CASE("a process that comes after the end of the job learns that the others have finished") {
    ElasticJob job(2);
    job.vote({1, 2});
    job.look();
    job.form();
    SUBCASE("of which one was killed") {
        job.end(1);
    }
    SUBCASE("all of them, after they had noted it") {
        job.store().set("gen/1/finishing", "");
        job.end(1, MembershipKeys::finished);
    }
    job.end(2, MembershipKeys::finished);
    job.vote(job.start());
    job.look();
    CHECK(job.over() == MembershipMonitor::all_have_finished);
}

TEST_CASE("a job below its least number of hosts waits for others") {
    ElasticJob job(3, 2);
    job.store().set(MembershipKeys::launchers, "2");
    job.store().set(MembershipKeys::members_of(1), "1 2");
    job.store().set(MembershipKeys::members_of(2), "3");
    job.vote({1, 2, 3});
    job.look();
    job.form();
    job.end(2);
    job.look();
    job.vote({1, 3});
    REQUIRE(job.members() == Members{1, 3});  // still on two hosts
    job.form();
    job.end(3);
    job.look();
    job.vote(1);
    job.pass(30s, {1});
    CHECK(job.members() == Members{});
    SUBCASE("and continues with them") {
        const MemberId added = job.start();
        job.store().set(MembershipKeys::launchers, "3");
        job.store().set(MembershipKeys::members_of(3), "4");
        job.vote(added);
        CHECK(job.members() == Members{1, 4});
    }
    SUBCASE("and ends after the timeout") {
        job.pass(31s, {1});
        CHECK(job.over() == "ranks are left on 1 host, fewer than the least 2, for 60 s");
    }
}

TEST_CASE("a minority of a job continues if there is no other store, and otherwise not") {
    bool is_only_store = false;
    SUBCASE("no other store") {
        is_only_store = true;
    }
    SUBCASE("several stores") {}
    ElasticJob job(5);
    if (!is_only_store) job.store().set(MembershipKeys::second, "node1:29501");
    job.vote({1, 2, 3, 4, 5});
    job.look();
    job.form();
    job.pass(12s, {1, 2});
    job.vote({1, 2});
    if (is_only_store) {
        CHECK(job.members() == Members{1, 2});
        return;
    }
    CHECK(job.members().empty());
    job.pass(61s, {1, 2});
    CHECK(job.over() ==
          "the ranks that are left (2) are not the majority of those that may continue elsewhere, for 60 s");
}

TEST_CASE("a lost member that comes back does not continue with an earlier state") {
    ElasticJob job(3);
    job.vote({1, 2, 3});
    job.look();
    job.form();
    job.pass(12s, {2, 3});  // member 1 is stopped
    job.vote({2, 3});
    REQUIRE(job.members() == Members{2, 3});
    job.form();
    job.pass(12s, {1});  // the others are stopped
    job.vote(1);
    const MemberId later = job.start();
    job.vote(later);
    CHECK(job.members().empty());
    job.vote({2, 3});
    CHECK(job.members() == Members{1, 2, 3, later});
}

namespace {

/// A second store, to which members of a generation of four come that have lost the first one. The first two
/// have been started by launcher 1, the others by launcher 2.
class SecondStore {
  public:
    SecondStore()
        : monitor_({.first_size = 4, .heartbeat_timeout = 10s, .timeout = 60s, .is_second = true}, now_) {
        store_.set(MembershipKeys::standby, "");
        store_.set(MembershipKeys::elsewhere, four_.to_text());
        store_.set(MembershipKeys::launchers, "2");
        store_.set(MembershipKeys::members_of(1), "1 2");
        store_.set(MembershipKeys::members_of(2), "3 4");
    }

    void take_over() { store_.erase(MembershipKeys::standby); }

    void come(const Members& ids) {
        for (const MemberId id : ids) {
            store_.set(MembershipKeys::arrival(store_.add(MembershipKeys::arrivals, 1)), std::to_string(id));
            store_.set(MembershipKeys::vote(id), Vote{.member = id, .seen = 7, .lineage = {four_}}.to_text());
        }
        come_ = ids;
    }

    void pass(std::chrono::seconds time) {
        for (auto step = 0s; step < time; step += 1s) {
            now_ += 1s;
            for (const MemberId id : come_) store_.add(MembershipKeys::beat(id), 1);
            monitor_.look(store_, now_);
        }
    }

    /// The members of the generation that is formed; an empty list before the first one.
    Members members() {
        monitor_.look(store_, now_);
        return monitor_.generation().members;
    }

    [[nodiscard]] const std::string& over() const { return monitor_.over(); }
    dptk::Store& store() { return store_; }

  private:
    Generation four_{7, {1, 2, 3, 4}};
    dptk::InProcessStore store_;
    MembershipMonitor::clock::time_point now_{};
    MembershipMonitor monitor_;
    Members come_;
};

}  // namespace

TEST_CASE("members that have lost the first store continue with the second one if they are the majority") {
    SecondStore job;
    job.take_over();
    SUBCASE("because the launcher of the others has ended") {
        job.come({3, 4});
        CHECK(job.members().empty());
        job.store().set(MembershipKeys::launcher_ended(1), "ended");
        CHECK(job.members() == Members{3, 4});
    }
    SUBCASE("because their launcher has reported that the others have ended") {
        job.store().set(MembershipKeys::ended(1), "has ended");
        job.come({3, 4});
        CHECK(job.members().empty());  // member 2 may come
        job.pass(12s);
        CHECK(job.members() == Members{3, 4});
    }
    SUBCASE("because they are more than the others, which may come within the heartbeat timeout") {
        job.come({2, 3, 4});
        job.pass(9s);
        CHECK(job.members().empty());
        job.pass(3s);
        CHECK(job.members() == Members{2, 3, 4});
    }
}

TEST_CASE("members that are no majority do not continue with the second store, which says so soon") {
    SecondStore job;
    job.come({3, 4});
    SUBCASE("others may use the first one") {
        job.pass(100s);  // on standby, it waits for as long as it takes
        CHECK(job.over().empty());
        job.take_over();
        job.pass(31s);
        CHECK(job.over() ==
              "the ranks that are left (2) are not the majority of those that may continue "
              "elsewhere, for 30 s");
    }
    SUBCASE("others have continued with the first one until their launcher ended") {
        job.store().set(MembershipKeys::elsewhere, Generation{8, {1, 2}}.to_text());
        job.store().set(MembershipKeys::launcher_ended(1), "ended");
        job.take_over();
        CHECK(job.members().empty());
        CHECK(job.over() == "all ranks that had its state have ended");
    }
    SUBCASE("others have completed the work with the first one, which had been out of reach") {
        const Vote last{.member = 1, .lineage = {Generation{8, {1, 2}}}};
        job.store().set(MembershipKeys::vote(1), last.to_text());
        job.store().set(MembershipKeys::ended(1), MembershipKeys::finished);
        job.store().set(MembershipKeys::ended(2), MembershipKeys::finished);
        job.store().set(MembershipKeys::out_of_date, "");
        job.take_over();
        CHECK(job.members().empty());
    }
    SUBCASE("others may have continued with the first one, which had been out of reach, and have ended") {
        job.store().set(MembershipKeys::launcher_ended(1), "ended");
        job.store().set(MembershipKeys::out_of_date, "");
        job.take_over();
        job.pass(31s);
        CHECK(job.over().find("are not the majority") != std::string::npos);
    }
    CHECK(job.members().empty());
}

TEST_CASE("a new member that comes to the second store after the end of the job learns that") {
    SecondStore job;
    for (const MemberId id : {1, 2, 3, 4})
        job.store().set(MembershipKeys::ended(id), MembershipKeys::finished);
    job.store().set(MembershipKeys::arrival(job.store().add(MembershipKeys::arrivals, 1)), "5");
    job.store().set(MembershipKeys::vote(5), Vote{.member = 5}.to_text());
    CHECK(job.members().empty());
    CHECK(job.over() == MembershipMonitor::all_have_finished);
}

TEST_CASE("the members of a launcher end with it") {
    ElasticJob job(3);
    job.vote({1, 2, 3});
    job.look();
    job.form();
    job.store().set(MembershipKeys::second, "node1:29501");
    job.store().set(MembershipKeys::launchers, "2");
    job.store().set(MembershipKeys::members_of(2), "2 3");
    job.store().set(MembershipKeys::launcher_ended(2), "ended");
    job.look();
    CHECK(job.cause(1) == "rank 1 has ended with the launcher that started it");
    job.vote(1);
    CHECK(job.members() == Members{1});  // the majority of those that are left
}
