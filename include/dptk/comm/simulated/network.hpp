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

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

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
class SimulatedClock final : public Wakeable {
  public:
    /// The time since `start`, or virtual time from 0.
    SimulatedClock(SimulatedTime kind, std::chrono::steady_clock::time_point start,
                   std::shared_ptr<JobHealth> health);

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
    DPTK_INLINE void wake() noexcept override;

  private:
    const SimulatedTime kind_;
    const std::chrono::steady_clock::time_point start_;
    const std::shared_ptr<JobHealth> health_;
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
                  const std::shared_ptr<JobHealth>& health)
        : number(number_), clock(network.time, start, health) {}

    const int number;
    SimulatedClock clock;
    LinkSchedule sending;
    LinkSchedule receiving;
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/simulated/network.ipp"
#endif
