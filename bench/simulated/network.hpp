/// A simulated network: its hosts, ranks and links, and the time of a rank, real or virtual.
/// comm/simulated.hpp sends messages over it.
///
/// The model is LogGP without the processor's part (Alexandrov, Ionescu, Schauser and Scheiman: "LogGP:
/// Incorporating Long Messages into the LogP Model", SPAA 1995; L = latency, G = 1 / bytes_per_second, and
/// o = g = 0). A message of b bytes takes its sender's link for b / bytes_per_second and, `latency` later,
/// its receiver's link for as long: alone, it arrives latency + b / bytes_per_second after it began. The link
/// of a rank carries one message at a time in each direction, whether to its own host or to another; nothing
/// else is shared between the ranks. Arithmetic and copies take no time.
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

/// What passes while messages are under way.
enum class SimulatedTime : std::uint8_t {
    /// Real time: whoever waits for a message sleeps until it has arrived. To within some 0.1 ms.
    real,
    /// Each rank's own virtual time: nobody sleeps, and each run gives the same times to the last bit.
    virtual_clock,
};

/// What a message takes from one rank to another: the latency, and its bytes.
struct SimulatedLink {
    /// From the first byte's departure to its arrival.
    SimulatedSeconds latency{0};
    /// Of one message; infinite: bytes take no time.
    double bytes_per_second = std::numeric_limits<double>::infinity();
};

/// `hosts` times `ranks_per_host` ranks; rank r is on host r / ranks_per_host.
struct SimulatedNetwork {
    int hosts = 1;                             ///< How many there are.
    int ranks_per_host = 1;                    ///< The same on all hosts.
    SimulatedLink inside_host = {};            ///< Between two ranks of a host.
    SimulatedLink between_hosts = {};          ///< Between ranks of two hosts.
    SimulatedTime time = SimulatedTime::real;  ///< Real, or each rank's own.

    /// How many ranks there are.
    [[nodiscard]] int ranks() const noexcept { return hosts * ranks_per_host; }

    /// Between two ranks.
    [[nodiscard]] const SimulatedLink& link(int a, int b) const noexcept;
};

namespace detail {

/// Throws ArgumentError for a network that cannot be.
void check_network(const SimulatedNetwork& network);

}  // namespace detail

/// The time of one rank, since the ranks were launched. All groups of the rank share it.
class SimulatedClock final : public detail::FailureListener {
  public:
    /// The time since `start`, or virtual time from 0.
    SimulatedClock(SimulatedTime kind, std::chrono::steady_clock::time_point start,
                   std::shared_ptr<detail::JobState> job_state);

    /// This rank's time.
    [[nodiscard]] SimulatedSeconds now() const;

    /// The rank computes for so long: virtual time goes on; real time is slept away. Throws PeerLostError
    /// where another rank fails meanwhile, and ArgumentError for a duration that is negative or not finite.
    void compute(SimulatedSeconds duration);

    /// Lets time pass until `time`, unless it has come already, and for at most `patience`. Returns whether
    /// it has come: not where the job fails meanwhile. Blocks in real time only.
    [[nodiscard]] bool pass_until(SimulatedSeconds time,
                                  std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());

    /// Ends a sleep, where the job fails.
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

/// When one direction of a rank's link is busy.
class LinkSchedule {
  public:
    /// Takes the link for `length`, at the first time from `earliest` on at which it is free for so long.
    /// Returns that time.
    SimulatedSeconds take(SimulatedSeconds earliest, SimulatedSeconds length);

  private:
    /// Ends by begins; none overlap.
    using Busy = std::map<SimulatedSeconds, SimulatedSeconds>;

    /// Messages are taken up in the order in which they are received, which is about that of their times: one
    /// that comes later than so many others is treated as if the link had been busy before them.
    static constexpr std::size_t remembered = 256;

    void mark(Busy::iterator next, SimulatedSeconds begin, SimulatedSeconds end);

    std::mutex mutex_;
    Busy busy_;
    SimulatedSeconds forgotten_{0};
};

/// A rank in the network, with both directions of its link.
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

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE {

inline const SimulatedLink& SimulatedNetwork::link(int a, int b) const noexcept {
    return a / ranks_per_host == b / ranks_per_host ? inside_host : between_hosts;
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

inline void check_network(const SimulatedNetwork& network) {
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
            detail::text("compute for ", duration.count(), " s, where 0 or more is expected"));
    if (!pass_until(now() + duration)) job_state_->check();
}

inline bool SimulatedClock::pass_until(SimulatedSeconds time, std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    if (kind_ == SimulatedTime::virtual_clock) {
        now_ = std::max(now_, std::min(time, now_ + SimulatedSeconds(patience)));
        return now_ >= time;
    }
    constexpr SimulatedSeconds longest_sleep = std::chrono::hours(1);  // far from where clocks overflow
    const SimulatedSeconds end = std::min(time, now() + SimulatedSeconds(patience));
    for (SimulatedSeconds left = end - now(); left.count() > 0; left = end - now()) {
        if (failed_.wait_for(lock, std::min(left, longest_sleep), [&] { return job_state_->failed(); }))
            return false;
    }
    return now() >= time;
}

inline void SimulatedClock::wake() noexcept {
    { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
    failed_.notify_all();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

inline SimulatedSeconds LinkSchedule::take(SimulatedSeconds earliest, SimulatedSeconds length) {
    const std::lock_guard lock(mutex_);
    SimulatedSeconds begin = std::max(earliest, forgotten_);
    auto next = busy_.upper_bound(begin);
    if (next != busy_.begin()) begin = std::max(begin, std::prev(next)->second);
    for (; next != busy_.end() && next->first < begin + length; ++next) begin = next->second;
    if (length.count() > 0) mark(next, begin, begin + length);
    return begin;
}

inline void LinkSchedule::mark(Busy::iterator next, SimulatedSeconds begin, SimulatedSeconds end) {
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
