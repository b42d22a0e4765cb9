// Quorum: which members of an elastic job may form its next generation.
#include <doctest/doctest.h>
#include <dptk/control/elastic/quorum.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

using dptk::detail::EndedMembers;
using dptk::detail::Generation;
using dptk::detail::Lineage;
using dptk::detail::lineage_of;
using dptk::detail::may_continue;
using dptk::detail::MemberId;
using dptk::detail::next_generation;
using dptk::detail::NextGeneration;
using dptk::detail::Vote;

namespace {

std::vector<Vote> votes_of(const std::vector<MemberId>& members, const Lineage& lineage) {
    std::vector<Vote> votes;
    for (const MemberId member : members) votes.push_back({.member = member, .lineage = lineage});
    return votes;
}

const Generation four{7, {1, 2, 3, 4}};

bool may(const std::vector<MemberId>& members, const std::vector<MemberId>& ended = {}) {
    EndedMembers ends;
    for (const MemberId member : ended) ends[member] = {four};
    return may_continue(votes_of(members, {four}), ends);
}

/// Simulates a job in which processes and hosts end, networks are cut, and members vote at either of two
/// stores at any time. It checks that each generation that takes steps continues with the state of the last
/// one.
class Simulation {
  public:
    explicit Simulation(unsigned seed) : random_(seed) {
        for (int host = 0; host < hosts; ++host) start_member(host);
        start_member(0);
        start_member(1);
    }

    void run(int events) {
        for (int i = 0; i < events; ++i) act();
    }

    [[nodiscard]] std::size_t generations_with_steps() const { return with_steps_.size(); }
    [[nodiscard]] bool is_consistent() const { return is_consistent_; }

  private:
    static constexpr int hosts = 3;

    enum class State { idle, voting, connecting, running, ended };

    struct Member {
        int host = 0;
        State state = State::idle;
        int store = -1;
        Vote vote = {};
        std::size_t record = 0;  // the index of the generation in which it connects or runs
    };

    struct Store {
        std::int64_t last = 0;
        std::map<std::int64_t, std::size_t> next;  // by the number of the generation before
        std::map<MemberId, Vote> votes;
        EndedMembers ended;
    };

    struct Record {
        NextGeneration next;
        std::set<MemberId> connected = {};
    };

    [[nodiscard]] int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

    [[nodiscard]] std::vector<MemberId> running_members() const {
        std::vector<MemberId> out;
        for (const auto& [id, member] : members_) {
            if (member.state != State::ended) out.push_back(id);
        }
        return out;
    }

    [[nodiscard]] bool reaches(int host, int other) const {
        return host == other || !cut_.contains({std::min(host, other), std::max(host, other)});
    }

    void start_member(int host) {
        const MemberId id = ++last_member_;
        members_[id].host = host;
        members_[id].vote.member = id;
    }

    void act() {
        const std::vector<MemberId> running = running_members();
        const int event = pick(200);
        if (event < 2) return toggle_cut();
        if (running.size() < 6 && event < 6) return start_member(pick(hosts));
        if (event < 20) return report_ends();
        if (event < 50) return decide(pick(2));
        if (running.empty()) return;
        const MemberId id = running[static_cast<std::size_t>(pick(static_cast<int>(running.size())))];
        Member& member = members_[id];
        if (pick(100) == 0) {
            member.state = State::ended;
        } else {
            advance(id, member);
        }
    }

    void toggle_cut() {
        const int one = pick(hosts);
        const int other = pick(hosts);
        if (one == other) return;
        const auto cut = std::pair(std::min(one, other), std::max(one, other));
        if (cut_.erase(cut) == 0) cut_.insert(cut);
    }

    /// The agent of a host reports the ends of its processes to a store that it can reach.
    void report_ends() {
        const int host = pick(hosts);
        const int store = pick(2);
        if (!reaches(host, store)) return;
        for (const auto& [id, member] : members_) {
            if (member.host == host && member.state == State::ended)
                stores_[store].ended[id] = member.vote.lineage;
        }
    }

    void advance(MemberId id, Member& member) {
        switch (member.state) {
            case State::ended: return;
            case State::idle: return vote(id, member);
            case State::voting: return await_record(id, member);
            case State::connecting: return connect(member);
            case State::running:
                if (pick(12) == 0) member.state = State::idle;  // another member has failed
        }
    }

    void vote(MemberId id, Member& member) {
        const int store = pick(2);
        if (!reaches(member.host, store)) return;
        member.store = store;
        member.vote.after = stores_[store].last;
        member.vote.seen = std::max(member.vote.seen, member.vote.after);
        stores_[store].votes[id] = member.vote;
        member.state = State::voting;
    }

    void await_record(MemberId id, Member& member) {
        if (pick(40) == 0) {  // votes elsewhere
            member.state = State::idle;
            return;
        }
        const Store& store = stores_[member.store];
        const auto next = store.next.find(member.vote.after);
        if (!reaches(member.host, member.store) || next == store.next.end()) return;
        const Generation& generation = records_[next->second].next.generation;
        member.vote.seen = std::max(member.vote.seen, generation.number);
        if (!generation.contains(id)) {
            member.state = State::idle;
            return;
        }
        member.vote.accept(records_[next->second].next);
        member.record = next->second;
        member.state = State::connecting;
        records_[member.record].connected.insert(id);
    }

    void connect(Member& member) {
        Record& record = records_[member.record];
        if (pick(30) == 0) {
            member.state = State::idle;
        } else if (record.connected.size() == record.next.generation.members.size()) {
            member.vote.note_formed(record.next.generation);
            member.state = State::running;
            if (all_run(member.record)) note_steps(record);
        }
    }

    [[nodiscard]] bool all_run(std::size_t record) const {
        const std::vector<MemberId>& members = records_[record].next.generation.members;
        return std::all_of(members.begin(), members.end(), [&](MemberId id) {
            const Member& member = members_.at(id);
            return member.state == State::running && member.record == record;
        });
    }

    /// Called when the members of this generation can take steps.
    void note_steps(const Record& record) {
        const bool is_first = with_steps_.empty();
        is_consistent_ = is_consistent_ && (is_first || descends_from(record, with_steps_.back()));
        with_steps_.push_back(record.next.generation);
    }

    /// Returns whether the members of a generation have got their state from `earlier`.
    [[nodiscard]] bool descends_from(const Record& record, const Generation& earlier) const {
        const Generation& base = record.next.before.formed;
        if (base.number <= earlier.number) return base == earlier;
        const auto before = std::find_if(records_.begin(), records_.end(),
                                         [&](const Record& other) { return other.next.generation == base; });
        return descends_from(*before, earlier);
    }

    void decide(int number) {
        Store& store = stores_[number];
        std::vector<Vote> votes;
        for (const auto& [id, vote] : store.votes) {
            if (vote.after == store.last && !store.ended.contains(id) && pick(8) != 0) votes.push_back(vote);
        }
        const bool is_first =
            number == 0 && store.last == 0 && lineage_of(votes, {}).all().empty() && votes.size() > 1;
        if (!is_first && !may_continue(votes, store.ended)) return;
        records_.push_back({next_generation(votes, store.ended)});
        store.next[store.last] = records_.size() - 1;
        store.last = records_.back().next.generation.number;
    }

    std::mt19937 random_;
    MemberId last_member_ = 0;
    std::map<MemberId, Member> members_;
    std::set<std::pair<int, int>> cut_;
    Store stores_[2];  // on the first two hosts
    std::vector<Record> records_;
    std::vector<Generation> with_steps_;
    bool is_consistent_ = true;
};

}  // namespace

TEST_CASE("generations, lineages and votes are unchanged after serialization and parsing") {
    CHECK(Generation::parse(four.to_text()) == four);
    CHECK(Generation::parse("0") == Generation{});
    const Lineage lineage{four, {{8, {2}}, {9, {1, 3}}}};
    CHECK(Lineage::parse(lineage.to_text()) == lineage);
    CHECK(Lineage::parse(Lineage{}.to_text()) == Lineage{});
    const NextGeneration next{{10, {3, 4}}, lineage};
    CHECK(NextGeneration::parse(next.to_text()) == next);
    const Vote vote{.member = 12, .after = 9, .seen = 11, .lineage = lineage};
    CHECK(Vote::parse(vote.to_text()) == vote);
    CHECK(Vote::parse(Vote{}.to_text()) == Vote{});
    CHECK_FALSE(Generation::parse("7 1 x").has_value());
    CHECK_FALSE(Generation::parse("").has_value());
    CHECK_FALSE(NextGeneration::parse("10 3 4").has_value());
    CHECK_FALSE(Vote::parse("12 9 11").has_value());
    CHECK_FALSE(Vote::parse("12 9\n7 1").has_value());
}

TEST_CASE("the members that continue are a majority of those that have not ended") {
    CHECK(may({1, 2, 3, 4}));
    CHECK(may({2, 3, 4}));
    CHECK_FALSE(may({1}));
    CHECK_FALSE(may({}));
    SUBCASE("of two halves, the one with the first member") {
        CHECK(may({1, 4}));
        CHECK_FALSE(may({2, 3}));
    }
    SUBCASE("members that have certainly ended are not counted") {
        CHECK(may({3, 4}, {1, 2}));
        CHECK(may({4}, {1, 2, 3}));
        CHECK(may({2, 3}, {1}));
        CHECK(may({2, 4}, {1, 3}));
        CHECK_FALSE(may({3}, {1}));
        CHECK_FALSE(may({}, {1, 2, 3, 4}));
    }
}

TEST_CASE("members that have ended may have continued without the voters before") {
    const Generation half{8, {1, 2}};
    EndedMembers ended{{1, {four}}, {2, {four, {half}}}};
    CHECK_FALSE(may_continue(votes_of({3, 4}, {four}), ended));
    ended[2] = {half};
    CHECK_FALSE(may_continue(votes_of({3, 4}, {four}), ended));
    ended[2] = {four};
    CHECK(may_continue(votes_of({3, 4}, {four}), ended));
}

TEST_CASE("new members have no vote") {
    std::vector<Vote> votes = votes_of({2, 3}, {four});
    for (const MemberId member : {5, 6, 7}) votes.push_back({.member = member});
    CHECK_FALSE(may_continue(votes, {}));
    votes.push_back({.member = 1, .lineage = {four}});
    CHECK(may_continue(votes, {}));
    CHECK_FALSE(may_continue(std::vector<Vote>{{.member = 5}, {.member = 6}}, {}));
}

TEST_CASE("a generation that others may have completed needs a majority as well") {
    const Generation larger{8, {1, 2, 3, 4, 5, 6, 7}};
    const Lineage both{four, {larger}};
    CHECK_FALSE(may_continue(votes_of({1, 5, 6, 7}, both), {}));
    CHECK_FALSE(may_continue(votes_of({1, 2, 3}, both), {}));
    CHECK(may_continue(votes_of({1, 2, 3, 5}, both), {}));
    SUBCASE("unless a later one is known to be complete") {
        std::vector<Vote> votes = votes_of({1, 2}, both);
        const Generation last{9, {1, 2, 3}};
        votes.push_back({.member = 3, .lineage = {last}});
        CHECK(lineage_of(votes, {}).all() == std::vector{last});
        CHECK(may_continue(votes, {}));
    }
    SUBCASE("also in the count of a new member that has accepted it") {
        Vote vote{.member = 5};
        vote.accept({larger, {four}});
        CHECK(vote.lineage == both);
        CHECK(vote.seen == 8);
        vote.note_formed(larger);
        CHECK(vote.lineage == Lineage{larger});
    }
}

TEST_CASE("the next number is larger than all that a voter has read") {
    const std::vector<Vote> votes{{.member = 1, .after = 3, .seen = 5}, {.member = 2, .after = 4}};
    CHECK(next_generation(votes, {}) == NextGeneration{{6, {1, 2}}, {}});
}

TEST_CASE("generations that take steps follow each other, whatever ends or is cut off, and when") {
    std::size_t generations = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        Simulation simulation(seed);
        simulation.run(2000);
        CAPTURE(seed);
        REQUIRE(simulation.is_consistent());
        generations += simulation.generations_with_steps();
    }
    CHECK(generations > 4000);
}
