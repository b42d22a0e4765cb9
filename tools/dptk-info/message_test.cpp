#include "message_test.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "hosts.hpp"
#include "statistics.hpp"

namespace info {

namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::size_t small = 8, large = std::size_t{4} << 20;  // bytes

/// Sends a message from rank 0 to `peer` and back, again and again for about `budget` seconds. Rank 0 returns
/// the median of half a round trip.
[[nodiscard]] double time_messages(dptk::ProcessGroup& group, int peer, std::size_t bytes, double budget) {
    const bool begins = group.rank() == 0;
    const int other = begins ? peer : 0;
    std::vector<std::byte> message(bytes);
    std::vector<double> seconds;
    const auto begin = std::chrono::steady_clock::now();
    for (std::array<int, 1> is_over{0}; is_over[0] == 0;) {
        const auto sent = std::chrono::steady_clock::now();
        if (begins) group.send(message, other);
        group.recv(std::span(message), other);
        if (!begins) group.send(message, other);
        const auto now = std::chrono::steady_clock::now();
        seconds.push_back(Seconds(now - sent).count() / 2);
        is_over[0] = Seconds(now - begin).count() < budget ? 0 : 1;
        if (begins) group.send(is_over, other);
        if (!begins) group.recv(is_over, other);
    }
    if (seconds.size() > 1) seconds.erase(seconds.begin());  // the first may include connecting
    return median(seconds);
}

}  // namespace

std::vector<MessageResult> run_message_test(dptk::ProcessGroup& group, const JobFacts& job, Effort effort,
                                            const std::function<void(const MessageResult&)>& on_result) {
    std::vector<int> peers;
    for (const Host& host : hosts_of(job)) {
        if (host.ranks.front()->rank != 0) peers.push_back(host.ranks.front()->rank);
    }
    if (peers.empty()) peers.push_back(1);
    const double total = effort == Effort::quick ? 1 : 10;  // seconds for all pairs
    const double budget = std::min(total / 10, total / static_cast<double>(2 * peers.size()));
    std::vector<MessageResult> results;
    for (const int peer : peers) {
        std::array<double, 2> seconds{};
        if (group.rank() == 0 || group.rank() == peer)
            seconds = {time_messages(group, peer, small, budget), time_messages(group, peer, large, budget)};
        group.broadcast(seconds);
        results.push_back({.peer = peer,
                           .latency = seconds[0],
                           .bytes_per_second = static_cast<double>(large) / seconds[1]});
        on_result(results.back());
    }
    return results;
}

}  // namespace info
