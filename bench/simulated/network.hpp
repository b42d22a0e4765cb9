/// Network model of the simulated transport: hosts, ranks, links with latency and bandwidth, and each
/// rank's clock, in real or virtual time. bench/simulated/transport.hpp sends messages over it.
///
/// The model is LogGP without CPU overhead (Alexandrov, Ionescu, Schauser and Scheiman: "LogGP:
/// Incorporating Long Messages into the LogP Model", SPAA 1995; L = latency, G = 1 / bytes_per_second, and
/// o = g = 0). A message of b bytes occupies its sender's link for b / bytes_per_second and, `latency`
/// later, its receiver's link for the same duration. Without contention it arrives latency + b /
/// bytes_per_second after the send began. Each rank has one link, which carries one message at a time in
/// each direction, to its own host or to another one; the ranks share nothing else. Arithmetic and copies
/// take no time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// Seconds of a simulated network, real or virtual.
using SimulatedSeconds = std::chrono::duration<double>;

/// The kind of time in which messages are in flight.
enum class SimulatedTime : std::uint8_t {
    /// Real time: a rank that waits for a message sleeps until it has arrived. Accurate to about 0.1 ms.
    real,
    /// Virtual time, per rank: no rank sleeps, and every run yields bitwise identical times.
    virtual_clock,
};

/// Latency and bandwidth of messages from one rank to another.
struct SimulatedLink {
    /// From the first byte's departure to its arrival.
    SimulatedSeconds latency{0};
    /// Bandwidth of one message. Infinite bandwidth means that the size does not matter.
    double bytes_per_second = std::numeric_limits<double>::infinity();
};

/// A network of `hosts` times `ranks_per_host` ranks; rank r is on host r / ranks_per_host.
struct SimulatedNetwork {
    int hosts = 1;                             ///< Number of hosts.
    int ranks_per_host = 1;                    ///< Number of ranks on each host.
    SimulatedLink inside_host = {};            ///< Link between two ranks of a host.
    SimulatedLink between_hosts = {};          ///< Link between ranks of different hosts.
    SimulatedTime time = SimulatedTime::real;  ///< Real time, or virtual time per rank.

    /// Returns the number of ranks.
    [[nodiscard]] int ranks() const noexcept { return hosts * ranks_per_host; }

    /// Returns the link between two ranks.
    [[nodiscard]] const SimulatedLink& link(int a, int b) const noexcept;
};

namespace detail {

/// Throws ArgumentError if the network is invalid.
void check_network(const SimulatedNetwork& network);

}  // namespace detail

/// The clock of one rank, which starts at 0 when the ranks are launched. All groups of the rank share it.
class SimulatedClock final : public detail::FailureListener {
  public:
    /// Creates a clock that shows the real time since `start`, or virtual time from 0.
    SimulatedClock(SimulatedTime kind, std::chrono::steady_clock::time_point start,
                   std::shared_ptr<detail::JobState> job_state);

    /// Returns this rank's time.
    [[nodiscard]] SimulatedSeconds now() const;

    /// Simulates computation of that duration: advances virtual time, or sleeps in real time. Throws
    /// PeerLostError if another rank fails meanwhile, and ArgumentError if the duration is negative or not
    /// finite.
    void compute(SimulatedSeconds duration);

    /// Waits until `time`, for at most `timeout`: advances virtual time, or blocks in real time. Returns
    /// whether `time` was reached; false if the job fails meanwhile.
    [[nodiscard]] bool pass_until(SimulatedSeconds time,
                                  std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

    /// Ends a sleep when the job fails.
    inline void wake() noexcept override;

  private:
    const SimulatedTime kind_;
    const std::chrono::steady_clock::time_point start_;
    const std::shared_ptr<detail::JobState> job_state_;
    mutable std::mutex mutex_;
    std::condition_variable failed_;
    SimulatedSeconds now_{0};
};

namespace detail {

/// The busy intervals of one direction of a rank's link.
class LinkSchedule {
  public:
    /// Reserves the link for `duration`, at the first time from `earliest` on at which it is free for that
    /// long. Returns that time.
    SimulatedSeconds reserve(SimulatedSeconds earliest, SimulatedSeconds duration);

  private:
    /// Maps the begin of each busy interval to its end. The intervals do not overlap.
    using Busy = std::map<SimulatedSeconds, SimulatedSeconds>;

    /// Maximum number of intervals that are kept. Reservations are made in the order in which messages are
    /// received, which is roughly that of their times. The link counts as busy before the oldest interval
    /// that is kept.
    static constexpr std::size_t max_intervals = 256;

    void mark(Busy::iterator next, SimulatedSeconds begin, SimulatedSeconds end);

    std::mutex mutex_;
    Busy busy_;
    SimulatedSeconds busy_before_{0};
};

/// A rank of the network: its clock, and both directions of its link.
struct SimulatedRank {
    SimulatedRank(int number_, const SimulatedNetwork& network, std::chrono::steady_clock::time_point start,
                  const std::shared_ptr<JobState>& job_state)
        : number(number_), clock(network.time, start, job_state) {}

    const int number;
    SimulatedClock clock;
    LinkSchedule sending;
    LinkSchedule receiving;
};

}  // namespace detail

inline const SimulatedLink& SimulatedNetwork::link(int a, int b) const noexcept {
    return a / ranks_per_host == b / ranks_per_host ? inside_host : between_hosts;
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

inline void check_network(const SimulatedNetwork& network) {
    const auto refuse = [](const auto&... why) {
        throw ArgumentError(text("invalid simulated network: ", why...));
    };
    if (network.hosts < 1) refuse("expected 1 or more hosts, got ", network.hosts);
    if (network.ranks_per_host < 1) refuse("expected 1 or more ranks per host, got ", network.ranks_per_host);
    if (network.hosts > std::numeric_limits<int>::max() / network.ranks_per_host)
        refuse("expected at most ", std::numeric_limits<int>::max(), " ranks, got ", network.hosts,
               " hosts with ", network.ranks_per_host, " ranks each");
    const auto check_link = [&](const SimulatedLink& link, std::string_view where) {
        const double latency = link.latency.count();
        if (!std::isfinite(latency) || latency < 0)
            refuse("expected a finite latency of 0 s or more ", where, ", got ", latency, " s");
        if (std::isnan(link.bytes_per_second) || link.bytes_per_second <= 0)
            refuse("expected more than 0 bytes per second ", where, ", got ", link.bytes_per_second);
    };
    check_link(network.inside_host, "inside a host");
    check_link(network.between_hosts, "between hosts");
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

inline SimulatedClock::SimulatedClock(SimulatedTime kind, std::chrono::steady_clock::time_point start,
                                      std::shared_ptr<detail::JobState> job_state)
    : kind_(kind), start_(start), job_state_(std::move(job_state)) {}

inline SimulatedSeconds SimulatedClock::now() const {
    if (kind_ == SimulatedTime::real) return std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(mutex_);
    return now_;
}

inline void SimulatedClock::compute(SimulatedSeconds duration) {
    if (!std::isfinite(duration.count()) || duration.count() < 0)
        throw ArgumentError(
            detail::text("SimulatedClock::compute: expected a finite duration of 0 s or more, got ",
                         duration.count(), " s"));
    if (!pass_until(now() + duration)) job_state_->check();
}

inline bool SimulatedClock::pass_until(SimulatedSeconds time, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    if (kind_ == SimulatedTime::virtual_clock) {
        now_ = std::max(now_, std::min(time, now_ + SimulatedSeconds(timeout)));
        return now_ >= time;
    }
    constexpr SimulatedSeconds longest_sleep = std::chrono::hours(1);  // avoids overflow of the system clock
    const SimulatedSeconds end = std::min(time, now() + SimulatedSeconds(timeout));
    for (SimulatedSeconds left = end - now(); left.count() > 0; left = end - now()) {
        if (failed_.wait_for(lock, std::min(left, longest_sleep), [&] { return job_state_->failed(); }))
            return false;
    }
    return now() >= time;
}

inline void SimulatedClock::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // a thread that has checked the condition is waiting by now
    failed_.notify_all();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

inline SimulatedSeconds LinkSchedule::reserve(SimulatedSeconds earliest, SimulatedSeconds duration) {
    const std::lock_guard lock(mutex_);
    SimulatedSeconds begin = std::max(earliest, busy_before_);
    auto next = busy_.upper_bound(begin);
    if (next != busy_.begin()) begin = std::max(begin, std::prev(next)->second);
    for (; next != busy_.end() && next->first < begin + duration; ++next) begin = next->second;
    if (duration.count() > 0) mark(next, begin, begin + duration);
    return begin;
}

inline void LinkSchedule::mark(Busy::iterator next, SimulatedSeconds begin, SimulatedSeconds end) {
    if (next != busy_.begin() && std::prev(next)->second == begin) {
        std::prev(next)->second = end;
    } else {
        busy_.emplace_hint(next, begin, end);
    }
    if (busy_.size() <= max_intervals) return;
    busy_before_ = busy_.begin()->second;
    busy_.erase(busy_.begin());
}

}  // namespace DPTK_NAMESPACE::detail
