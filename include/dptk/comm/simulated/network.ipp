#pragma once

#include "dptk/comm/simulated/network.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "dptk/core/error.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE const SimulatedLink& SimulatedNetwork::link(int a, int b) const noexcept {
    return a / ranks_per_host == b / ranks_per_host ? inside_host : between_hosts;
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void check_network(const SimulatedNetwork& network) {
    const auto refuse = [](const auto&... why) { throw ArgumentError(text("a simulated network ", why...)); };
    if (network.hosts < 1) refuse("of ", network.hosts, " hosts, where 1 or more are expected");
    if (network.ranks_per_host < 1)
        refuse("of ", network.ranks_per_host, " ranks a host, where 1 or more are expected");
    if (network.hosts > std::numeric_limits<int>::max() / network.ranks_per_host)
        refuse("of ", network.hosts, " hosts with ", network.ranks_per_host,
               " ranks each: that many have no numbers");
    const auto check_link = [&](const SimulatedLink& link, std::string_view where) {
        const double latency = link.latency.count();
        if (!std::isfinite(latency) || latency < 0)
            refuse("with a latency of ", latency, " s ", where, ", where 0 or more is expected");
        if (std::isnan(link.bytes_per_second) || link.bytes_per_second <= 0)
            refuse("with ", link.bytes_per_second, " bytes per second ", where,
                   ", where more than 0 are expected");
    };
    check_link(network.inside_host, "inside a host");
    check_link(network.between_hosts, "between hosts");
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE SimulatedClock::SimulatedClock(SimulatedTime kind, std::chrono::steady_clock::time_point start,
                                           std::shared_ptr<JobHealth> health)
    : kind_(kind), start_(start), health_(std::move(health)) {}

DPTK_INLINE SimulatedSeconds SimulatedClock::now() const {
    if (kind_ == SimulatedTime::real) return std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(mutex_);
    return now_;
}

DPTK_INLINE void SimulatedClock::compute(SimulatedSeconds duration) {
    if (!std::isfinite(duration.count()) || duration.count() < 0)
        throw ArgumentError(
            detail::text("compute for ", duration.count(), " s, where 0 or more is expected"));
    if (!pass_until(now() + duration)) health_->check();
}

DPTK_INLINE bool SimulatedClock::pass_until(SimulatedSeconds time, std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    if (kind_ == SimulatedTime::virtual_clock) {
        now_ = std::max(now_, std::min(time, now_ + SimulatedSeconds(patience)));
        return now_ >= time;
    }
    constexpr SimulatedSeconds longest_sleep = std::chrono::hours(1);  // far from where clocks overflow
    const SimulatedSeconds end = std::min(time, now() + SimulatedSeconds(patience));
    for (SimulatedSeconds left = end - now(); left.count() > 0; left = end - now()) {
        if (failed_.wait_for(lock, std::min(left, longest_sleep), [&] { return health_->failed(); }))
            return false;
    }
    return now() >= time;
}

DPTK_INLINE void SimulatedClock::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
    failed_.notify_all();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE SimulatedSeconds LinkSchedule::take(SimulatedSeconds earliest, SimulatedSeconds length) {
    const std::lock_guard lock(mutex_);
    SimulatedSeconds begin = std::max(earliest, forgotten_);
    auto next = busy_.upper_bound(begin);
    if (next != busy_.begin()) begin = std::max(begin, std::prev(next)->second);
    for (; next != busy_.end() && next->first < begin + length; ++next) begin = next->second;
    if (length.count() > 0) mark(next, begin, begin + length);
    return begin;
}

DPTK_INLINE void LinkSchedule::mark(Busy::iterator next, SimulatedSeconds begin, SimulatedSeconds end) {
    if (next != busy_.begin() && std::prev(next)->second == begin) {
        std::prev(next)->second = end;
    } else {
        busy_.emplace_hint(next, begin, end);
    }
    if (busy_.size() <= remembered) return;
    forgotten_ = busy_.begin()->second;
    busy_.erase(busy_.begin());
}

}  // namespace DPTK_NAMESPACE::detail
