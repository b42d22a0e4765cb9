// Rank monitor: detects lost ranks from their statuses in a store. The tests pass artificial times.
#include <doctest/doctest.h>
#include <dptk/control/health/heartbeat.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct Job {
    dptk::InProcessStore store;
    dptk::detail::RankMonitor::clock::time_point now{};
    dptk::detail::RankMonitor monitor{{"rank 0 (host a)", "rank 1 (host b)", "rank 2 (host b)"}, 10s, now};
    std::uint64_t beats = 0;
    std::vector<int> blamed;

    void beat(int rank, const dptk::detail::ChannelStatus& channel = {"0", 3, false, 0ms, -1, ""}) {
        store.set(dptk::detail::ControlPlane::status_key(rank),
                  to_text(dptk::detail::RankStatus{++beats, {channel}}));
    }

    /// Returns the status of a channel that has waited for a message for two seconds.
    static dptk::detail::ChannelStatus in_message(int peer) {
        return {"0/messages", 3, true, 2s, peer, "recv(4 x f32, tag 0)"};
    }

    void leave(int rank, std::uint64_t calls) {
        store.set(dptk::detail::ControlPlane::left_key(rank),
                  to_text(dptk::detail::RankStatus{0, {{"0", calls, false, 0ms, -1, ""}}}));
    }

    /// Returns the monitor's verdict, and keeps whom it blames.
    std::optional<std::string> look() {
        const auto verdict = monitor.look(store, now);
        if (!verdict) return std::nullopt;
        blamed = verdict->ranks;
        return verdict->text;
    }

    /// Advances the time in steps of 1 s. These ranks send a heartbeat in each step.
    std::optional<std::string> pass(std::chrono::seconds time, std::initializer_list<int> beating) {
        for (auto step = 0s; step < time; step += 1s) {
            now += 1s;
            for (const int rank : beating) beat(rank);
            if (auto verdict = look()) return verdict;
        }
        return std::nullopt;
    }
};

}  // namespace

TEST_CASE("a status is unchanged after serialization and parsing") {
    const dptk::detail::RankStatus status{
        7, {{"0", 41, true, 1500ms, -1, "all_reduce(sum, 4 x f32) #41"}, {"0.0", 0, false, 3ms, -1, ""}}};
    const std::optional<dptk::detail::RankStatus> back = dptk::detail::parse_rank_status(to_text(status));
    REQUIRE(back);
    CHECK(back->beat == 7);
    REQUIRE(back->channels.size() == 2);
    CHECK(back->channels[0].call == "all_reduce(sum, 4 x f32) #41");
    CHECK(back->channels[0].active);
    CHECK_FALSE(back->channels[0].is_awaited);
    dptk::detail::RankStatus awaited = status;
    awaited.channels[0].is_awaited = true;
    CHECK(dptk::detail::parse_rank_status(to_text(awaited))->channels[0].is_awaited);
    CHECK(back->channels[0].duration == 1500ms);
    CHECK(back->channel("0.0")->sequence == 0);
    CHECK(back->channel("0.1") == nullptr);
    for (const char* garbage : {"", "x", "1\n0 x idle 1 y", "1\n0", "1\n\n"})
        CHECK_FALSE(dptk::detail::parse_rank_status(garbage));
}

TEST_CASE("ranks that wait for each other in different groups are found within two heartbeats") {
    const auto idle = [](const char* name, std::uint64_t sequence) {
        return dptk::detail::ChannelStatus{name, sequence, false, 0ms, -1, "barrier #1"};
    };
    const auto waits = [](const char* name, std::uint64_t sequence, std::string call) {
        return dptk::detail::ChannelStatus{name, sequence, true, 100ms, -1, std::move(call), true};
    };
    const auto beat = [](Job& job, int rank, const std::vector<dptk::detail::ChannelStatus>& channels) {
        job.store.set(dptk::detail::ControlPlane::status_key(rank),
                      to_text(dptk::detail::RankStatus{++job.beats, channels}));
    };
    std::vector<int> blamed;
    const auto verdict_after = [&](int beats, const auto& all_beat) {
        Job job;
        std::optional<std::string> verdict;
        for (int i = 0; i < beats && !verdict; ++i) {
            all_beat(job, i);
            job.now += 1s;
            verdict = job.look();
        }
        blamed = job.blamed;
        return verdict;
    };
    const std::string step =
        "synchronize(), step 12, of DistributedDataParallel: all_reduce(sum, 4 x f64) #24";
    const auto circle = [&](Job& job, int) {
        beat(job, 0, {idle("0", 7), waits("0.0", 24, step)});
        beat(job, 1, {waits("0", 8, "all_reduce(sum, 1 x f32) #8"), idle("0.0", 23)});
        beat(job, 2, {idle("0", 7), waits("0.0", 24, step)});
    };
    const std::optional<std::string> found = verdict_after(2, circle);
    REQUIRE(found);
    CHECK(*found == "ranks wait for each other: rank 0 (host a) waits for rank 1 (host b) in " + step +
                        " of group 0.0; rank 1 (host b) waits for rank 0 (host a) in all_reduce(sum, 1 x "
                        "f32) #8 of group 0");
    CHECK(blamed == std::vector{1});  // alone against two

    CHECK_FALSE(verdict_after(1, circle));
    CHECK_FALSE(verdict_after(9, [&](Job& job, int i) {  // rank 1 makes progress
        beat(job, 0, {idle("0", 7), waits("0.0", 24, step)});
        beat(job, 1, {waits("0", 8U + static_cast<unsigned>(i), "barrier #8"), idle("0.0", 23)});
        beat(job, 2, {idle("0", 7), idle("0.0", 23)});
    }));
    CHECK_FALSE(verdict_after(9, [&](Job& job, int) {  // a background thread of rank 1 may enter the call
        beat(job, 0, {idle("0", 7), waits("0.0", 24, step)});
        auto other = waits("0", 8, "barrier #8");
        other.is_awaited = false;
        beat(job, 1, {other, idle("0.0", 23)});
        beat(job, 2, {idle("0", 7), idle("0.0", 23)});
    }));
    CHECK_FALSE(verdict_after(9, [&](Job& job, int) {  // rank 1 computes
        beat(job, 0, {idle("0", 7), waits("0.0", 24, step)});
        beat(job, 1, {idle("0", 7), idle("0.0", 23)});
        beat(job, 2, {idle("0", 7), waits("0.0", 24, step)});
    }));
    const auto of_three = verdict_after(3, [&](Job& job, int) {
        beat(job, 0, {waits("a", 2, "barrier #2"), idle("c", 1)});
        beat(job, 1, {waits("b", 2, "barrier #2"), idle("a", 1)});
        beat(job, 2, {waits("c", 2, "barrier #2"), idle("b", 1)});
    });
    REQUIRE(of_three);
    CHECK(blamed == std::vector{0, 1, 2});
    CHECK(of_three->find("rank 2 (host b) waits for rank 0 (host a) in barrier #2 of group c") !=
          std::string::npos);
}

TEST_CASE("ranks that wait in different calls with the same number are named") {
    const auto call = [](std::string text, std::uint64_t number, std::uint64_t hash) {
        return dptk::detail::ChannelStatus{"0", number, true, 2s, -1, std::move(text), true, hash};
    };
    std::vector<int> blamed;
    const auto verdict_of_three = [&](const dptk::detail::ChannelStatus& first,
                                      const dptk::detail::ChannelStatus& between,
                                      const dptk::detail::ChannelStatus& second) {
        Job job;
        job.beat(0, first);
        job.beat(1, between);
        job.beat(2, second);
        job.now += 1s;
        const std::optional<std::string> verdict = job.look();
        blamed = job.blamed;
        return verdict;
    };
    const auto verdict = [&](const dptk::detail::ChannelStatus& first,
                             const dptk::detail::ChannelStatus& second) {
        return verdict_of_three(first, first, second);
    };
    const auto sum = call("all_reduce(sum, 4 x f32) #7", 7, 11);
    CHECK(
        verdict(sum, call("broadcast(root 0, 4 x f32) #7", 7, 12)) ==
        "calls differ between ranks: rank 0 (host a) calls all_reduce(sum, 4 x f32) #7, and rank 2 (host b) "
        "calls broadcast(root 0, 4 x f32) #7");
    CHECK(blamed == std::vector{2});  // alone against two
    CHECK_FALSE(verdict(sum, sum));
    CHECK_FALSE(verdict(sum, call("broadcast(root 0, 4 x f32) #6", 6, 12)));
    CHECK_FALSE(verdict(sum, call("broadcast(root 0, 4 x f32) #7", 7, 0)));  // may be another call's text
    auto soon = call("broadcast(root 0, 4 x f32) #7", 7, 12);
    soon.duration = 100ms;
    CHECK_FALSE(verdict(sum, soon));
    soon = call("broadcast(root 0, 4 x f32) #7", 7, 12);
    soon.active = soon.is_awaited = false;
    CHECK_FALSE(verdict(sum, soon));
    // Rank 1 has not come to the call, whose own check may still throw an agreed error.
    const auto other = call("broadcast(root 0, 4 x f32) #7", 7, 12);
    CHECK_FALSE(verdict_of_three(sum, call("barrier #6", 6, 13), other));
    CHECK(verdict_of_three(sum, call("barrier #8", 8, 13), other));
    CHECK(blamed == std::vector{0, 2});
}

TEST_CASE("ranks that send heartbeats are not lost") {
    Job job;
    CHECK_FALSE(job.pass(100s, {0, 1, 2}));
}

TEST_CASE("all ranks of a lost host are named together") {
    Job job;
    CHECK_FALSE(job.pass(5s, {0, 1, 2}));
    CHECK_FALSE(job.pass(2s, {0, 1}));  // the heartbeats of rank 2 stop shortly before those of rank 1
    const std::optional<std::string> verdict = job.pass(20s, {0});
    REQUIRE(verdict);
    CHECK(*verdict == "no heartbeat for 10 s: rank 1 (host b), rank 2 (host b)");
    CHECK(job.blamed == std::vector{1, 2});
}

TEST_CASE("a rank without heartbeat is reported with the call that it was in") {
    Job job;
    job.beat(1, {"0", 4, true, 2s, -1, "barrier #4"});
    const std::optional<std::string> verdict = job.pass(20s, {0, 2});
    REQUIRE(verdict);
    CHECK(*verdict == "no heartbeat for 10 s: rank 1 (host b) in barrier #4");
}

TEST_CASE("a rank that has left needs no heartbeat") {
    Job job;
    job.leave(1, 3);
    CHECK_FALSE(job.pass(100s, {0, 2}));
    job.leave(0, 3);
    job.leave(2, 3);
    CHECK_FALSE(job.pass(100s, {}));
    CHECK(job.monitor.all_have_left());
}

TEST_CASE("a rank that waits for a rank that has left is reported, unless the other has made the call") {
    Job job;
    job.leave(1, 3);
    job.beat(0, {"0", 3, true, 5s, -1, "broadcast #3"});
    job.beat(2);
    CHECK_FALSE(job.look());
    job.beat(0, {"0", 4, true, 500ms, -1, "all_reduce(sum, 4 x f32) #4"});
    CHECK_FALSE(job.look());  // the call may be about to complete
    job.beat(0, {"0", 4, true, 1500ms, -1, "all_reduce(sum, 4 x f32) #4"});
    const std::optional<std::string> verdict = job.look();
    REQUIRE(verdict);
    CHECK(*verdict ==
          "rank 1 (host b) has left its process group after 3 calls, and rank 0 (host a) waits for it in "
          "all_reduce(sum, 4 x f32) #4");
}

TEST_CASE("a rank that waits for a message from a rank that has left is reported after two more heartbeats") {
    Job job;
    job.beat(0, Job::in_message(1));
    CHECK_FALSE(job.pass(1s, {1, 2}));
    job.leave(1, 0);
    CHECK_FALSE(job.pass(3s, {2}));  // no heartbeat of rank 0 since the departure
    job.beat(0, Job::in_message(1));
    CHECK_FALSE(job.pass(1s, {2}));  // one heartbeat, whose status may be older than the departure
    SUBCASE("the message arrives") {
        CHECK_FALSE(job.pass(20s, {0, 2}));
    }
    SUBCASE("the message does not arrive") {
        job.beat(0, Job::in_message(1));
        const std::optional<std::string> verdict = job.pass(1s, {2});
        REQUIRE(verdict);
        CHECK(*verdict ==
              "rank 1 (host b) has left its process group, and rank 0 (host a) waits for it in recv(4 x f32, "
              "tag 0)");
    }
    SUBCASE("the rank waits for a message from any rank") {
        job.leave(2, 0);
        for (int i = 0; i < 2; ++i) {
            job.beat(0, Job::in_message(dptk::detail::CallTracker::any_peer));
            CHECK_FALSE(job.pass(1s, {}));
        }
        job.beat(0, Job::in_message(dptk::detail::CallTracker::any_peer));
        const std::optional<std::string> verdict = job.pass(1s, {});
        REQUIRE(verdict);
        CHECK(*verdict ==
              "all other ranks have left their process groups, and rank 0 (host a) waits for them in "
              "recv(4 x "
              "f32, tag 0)");
    }
}

TEST_CASE("calls that differed long ago are named after the ranks have been asked for them") {
    using dptk::detail::CallRequest;
    Job job;
    const auto beat = [&](int rank, std::uint32_t hash) {
        dptk::detail::ChannelStatus channel{"0", 900, false, 0ms, -1, "barrier #900"};
        channel.marks = {{900, hash}, {512, 7}};
        job.beat(rank, channel);
    };
    const auto all_beat = [&] {
        job.now += 1s;
        beat(0, 1);
        beat(1, 2);
        beat(2, 1);
        return job.look();
    };
    CHECK_FALSE(all_beat());
    const std::optional<std::string> asked = job.store.find(CallRequest::key);
    REQUIRE(asked);
    const std::optional<CallRequest> request = CallRequest::parse(*asked);
    REQUIRE(request);
    CHECK(request->one == 0);
    CHECK(request->other == 1);
    CHECK(request->after == 512);
    CHECK(request->until == 900);
    CHECK(request->channel == "0");
    SUBCASE("the ranks reply") {
        const auto reply = [&](std::size_t rank, const std::string& call) {
            std::vector<dptk::detail::NumberedCall> calls{{513, "barrier #513"}, {514, call}};
            job.store.set(CallRequest::reply_key(rank), dptk::detail::to_text(calls));
        };
        reply(0, "all_reduce(sum, 4 x f32) #514");
        CHECK_FALSE(all_beat());
        reply(1, "all_reduce(max, 4 x f32) #514");
        CHECK(all_beat() ==
              "calls differ between ranks: rank 0 (host a) calls all_reduce(sum, 4 x f32) #514, and rank 1 "
              "(host b) calls all_reduce(max, 4 x f32) #514");
    }
    SUBCASE("the ranks do not reply, or no longer keep the calls") {
        CHECK_FALSE(all_beat());
        CHECK_FALSE(all_beat());
        CHECK(
            all_beat() ==
            "calls differ between ranks: rank 0 (host a) and rank 1 (host b) have not made the same calls on "
            "group 0 after #512 and until #900");
    }
    CHECK(job.blamed == std::vector{1});
}

TEST_CASE("of ranks whose calls differ, the one that is alone is to blame") {
    for (const int odd : {0, 1, 2}) {
        Job job;
        for (int rank = 0; rank < 3; ++rank) {
            dptk::detail::ChannelStatus channel{"0", 7, false, 0ms, -1, "barrier #7"};
            channel.marks = {{7, rank == odd ? 1U : 2U}, {4, 3}};
            for (std::uint64_t number = 5; number <= 7; ++number)
                channel.calls.push_back({number, rank == odd && number == 5 ? "barrier #5" : "call"});
            job.beat(rank, channel);
        }
        CHECK(job.look());
        CHECK(job.blamed == std::vector{odd});
    }
}
