// Call history: ranks find calls that differ, even if all calls have ended.
#include <doctest/doctest.h>
#include <dptk/control/health/call_comparison.hpp>
#include <dptk/control/health/call_history.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using dptk::detail::CallHistory;

namespace {

/// A rank that makes calls, and what it publishes about them.
struct Rank {
    std::unique_ptr<CallHistory> history = std::make_unique<CallHistory>();
    std::vector<std::uint64_t> words = {};
    bool is_in_last = false;

    void call(std::uint64_t word, int times = 1) {
        for (int i = 0; i < times; ++i) {
            words.push_back(word);
            history->add(words.size(), {word, 0});
        }
    }

    void fail(std::uint64_t word) {
        call(word);
        history->forget(words.size());
    }

    [[nodiscard]] dptk::detail::RankStatus status(std::size_t recent = 8) const {
        dptk::detail::ChannelStatus channel;
        channel.name = "0";
        channel.sequence = words.size();
        if (is_in_last) channel.active_mark = history->mark(words.size());
        channel.marks = history->marks(words.size() - (is_in_last ? 1 : 0));
        for (std::size_t i = words.size() < recent ? 0 : words.size() - recent; i < words.size(); ++i)
            channel.calls.push_back({i + 1, "call " + std::to_string(words[i])});
        const auto sent = dptk::detail::parse_rank_status(to_text(dptk::detail::RankStatus{1, {channel}}));
        REQUIRE(sent);
        return *sent;
    }
};

[[nodiscard]] std::optional<dptk::detail::CallDifference> difference(
    const std::vector<dptk::detail::RankStatus>& statuses) {
    std::vector<const dptk::detail::RankStatus*> each;
    for (const auto& status : statuses) each.push_back(&status);
    return find_difference(each);
}

}  // namespace

TEST_CASE("ranks with the same calls have the same marks, however far one is ahead") {
    for (const int ahead : {0, 1, 3, 100, 5000}) {
        Rank a;
        Rank b;
        for (Rank* const rank : {&a, &b}) {
            for (int i = 0; i < 3000; ++i) rank->call(static_cast<std::uint64_t>(i % 7));
        }
        b.call(9, ahead);
        CHECK_FALSE(difference({a.status(), b.status()}));
        b.is_in_last = true;
        CHECK_FALSE(difference({a.status(), b.status()}));
    }
}

TEST_CASE("one call that differs is found after any number of further calls") {
    for (const int further : {0, 1, 5, 8, 20, 1000, 1024, 5000}) {
        for (const int before : {0, 1, 2, 31, 2000}) {
            for (const int ahead : {0, 2}) {
                CAPTURE(further);
                CAPTURE(before);
                CAPTURE(ahead);
                Rank a;
                Rank b;
                a.call(1, before);
                b.call(1, before);
                a.call(2);
                b.call(3);
                a.call(1, further);
                b.call(1, further + ahead);
                const auto found = difference({a.status(), b.status()});
                REQUIRE(found);
                const auto number = static_cast<std::uint64_t>(before) + 1;
                CHECK(found->one == 0);
                CHECK(found->other == 1);
                CHECK(found->same_until < number);
                CHECK(found->differ_at >= number);
                const auto calls = differing_calls(*found, a.status(10000).channels[0].calls,
                                                   b.status(10000).channels[0].calls);
                REQUIRE(calls);
                CHECK(calls->first == "call 2");
                CHECK(calls->second == "call 3");
            }
        }
    }
}

TEST_CASE("an active call is compared with calls that have ended, but not with active calls") {
    Rank a;
    Rank b;
    a.call(1, 5);
    b.call(1, 5);
    a.call(2);
    b.call(3);
    a.is_in_last = b.is_in_last = true;
    CHECK_FALSE(difference({a.status(), b.status()}));
    b.call(4);
    const auto found = difference({a.status(), b.status()});
    REQUIRE(found);
    CHECK(found->same_until == 5);
    CHECK(found->differ_at == 6);
    const std::vector<std::string> labels{"rank 0", "rank 1"};
    const auto calls = differing_calls(*found, a.status().channels[0].calls, b.status().channels[0].calls);
    CHECK(describe(*found, calls, labels) ==
          "calls differ between ranks: rank 0 calls call 2, and rank 1 calls call 3");
    CHECK(
        describe(*found, std::nullopt, labels) ==
        "calls differ between ranks: rank 0 and rank 1 have not made the same calls on group 0 after #5 and "
        "until #6");
}

TEST_CASE("calls that differ and end in an agreed error leave no trace") {
    for (const int before : {0, 3, 1023, 1024}) {
        Rank a;
        Rank b;
        a.call(1, before);
        b.call(1, before);
        a.fail(2);
        b.call(3);
        b.is_in_last = true;
        CHECK_FALSE(difference({a.status(), b.status()}));
        b.history->forget(b.words.size());
        CHECK_FALSE(difference({a.status(), b.status()}));
        b.is_in_last = false;
        a.call(1, 100);
        b.call(1, 90);
        CHECK_FALSE(difference({a.status(), b.status()}));
        a.call(7);
        b.call(1, 11);
        CHECK(difference({a.status(), b.status()}));
    }
}

TEST_CASE("a history keeps the most recent calls") {
    Rank rank;
    rank.call(1, 10);
    rank.call(2, static_cast<int>(CallHistory::kept));
    CHECK_FALSE(rank.history->call(10));
    CHECK_FALSE(rank.history->call(0));
    CHECK(rank.history->call(11)->first == 2);
    CHECK_FALSE(rank.history->call(rank.words.size() + 1));
}

TEST_CASE("a history can be read while calls are added") {
    constexpr std::uint64_t calls = 200'000;
    CallHistory history;
    std::atomic<std::uint64_t> last = 0;
    std::jthread writer([&] {
        for (std::uint64_t number = 1; number <= calls; ++number) {
            history.add(number, {number, ~number});
            last.store(number, std::memory_order_release);
        }
    });
    int torn = 0;
    while (last < calls) {
        const std::uint64_t number = last.load(std::memory_order_acquire);
        for (const dptk::detail::CallMark& mark : history.marks(number)) torn += mark.number > number ? 1 : 0;
        if (const auto call = history.call(number))
            torn += call->first != number || call->second != ~number ? 1 : 0;
    }
    CHECK(torn == 0);
    CHECK(history.call(calls));
}
