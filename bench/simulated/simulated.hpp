/// Network simulator: launch_simulated(network, fn) runs fn on ranks that are threads of one process, and
/// whose messages take as long as over a SimulatedNetwork. It is used to compare algorithms, bucket sizes
/// and networks without the hardware, and to measure how much communication is overlapped.
///
/// Collectives use the algorithms of comm/algorithms/, over send and recv. Messages are buffered: send does
/// not wait for the receiver, but returns when the rank's link is free again.
///
/// Overlap of collectives is simulated only in real time, in which background work takes time but no CPU.
/// In virtual time, a started collective is executed, and takes its time, when the caller waits for it or
/// polls it. If several groups have started collectives, all ranks must wait for them in the same order.
/// Started messages progress in the background in both kinds of time.
///
/// Virtual times are deterministic, unless the program receives from any rank or polls for a message. A
/// polling loop must call compute(), since only compute() and messages advance virtual time.
///
/// Only the ratio of bytes to bytes per second matters: a buffer of a thousandth of the size, over links of
/// a thousandth of the bandwidth, takes the same time, so that the buffers of a thousand ranks fit in
/// memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/thread.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/in_process_store.hpp"
#include "dptk/core/config.hpp"
#include "messages.hpp"
#include "network.hpp"
#include "transport.hpp"

namespace DPTK_NAMESPACE {

/// One rank of a simulated network. launch_simulated creates it, and passes it to fn as a ProcessGroup.
using SimulatedCommunicator = BasicCommunicator<SimulatedTransport>;

namespace detail {

/// State that the ranks of one launch_simulated call share.
class SimulatedJob {
  public:
    SimulatedJob(const SimulatedNetwork& network, ThreadOptions options)
        : network_(network), options_(options) {}

    /// Adds a thread rank to the network, which uses the job state of the thread ranks.
    [[nodiscard]] std::shared_ptr<SimulatedRank> join(int rank, const std::shared_ptr<JobState>& job_state);

    [[nodiscard]] SimulatedTransport transport(const std::shared_ptr<SimulatedRank>& self) const;

    /// Records the time at which a rank ended.
    void end(SimulatedSeconds time);

    /// Returns the end time of the rank that ended last.
    [[nodiscard]] SimulatedSeconds end() const { return end_; }

  private:
    const SimulatedNetwork network_;
    const ThreadOptions options_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    const std::shared_ptr<Store> store_ = std::make_shared<InProcessStore>();
    std::once_flag begun_;
    std::shared_ptr<SimulatedHub> hub_;
    std::mutex mutex_;
    SimulatedSeconds end_{0};
};

}  // namespace detail

/// Runs fn(ProcessGroup&, SimulatedClock&), or fn(ProcessGroup&), on all ranks of the network, one thread
/// per rank. Blocks. Returns the time at which the last rank returned from fn.
///
/// Throws the exceptions of launch_threads, and ArgumentError if the network has no ranks, or an invalid
/// latency or bandwidth.
template <class Fn>
SimulatedSeconds launch_simulated(const SimulatedNetwork& network, Fn&& fn, ThreadOptions options = {}) {
    detail::check_network(network);
    detail::SimulatedJob job(network, options);
    const auto run_rank = [&](ProcessGroup& group) {
        const std::shared_ptr<detail::SimulatedRank> self =
            job.join(group.rank(), group.engine().control()->job_state());
        group = SimulatedCommunicator(job.transport(self));  // launch_threads owns and closes it
        if constexpr (std::is_invocable_v<Fn&, ProcessGroup&, SimulatedClock&>) {
            fn(group, self->clock);
        } else {
            fn(group);
        }
        job.end(self->clock.now());
    };
    launch_threads(network.ranks(), run_rank, options);
    return job.end();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

inline std::shared_ptr<SimulatedRank> SimulatedJob::join(int rank,
                                                         const std::shared_ptr<JobState>& job_state) {
    std::call_once(begun_, [&] {
        std::vector<int> all(static_cast<std::size_t>(network_.ranks()));
        std::iota(all.begin(), all.end(), 0);
        hub_ = SimulatedHub::make(network_, std::move(all), job_state);
    });
    auto self = std::make_shared<SimulatedRank>(rank, network_, start_, job_state);
    job_state->subscribe({self, &self->clock});
    return self;
}

inline SimulatedTransport SimulatedJob::transport(const std::shared_ptr<SimulatedRank>& self) const {
    return {hub_, self,
            ControlPlane::make({.rank = self->number,
                                .size = network_.ranks(),
                                .store = store_,
                                .timeout = options_.timeout.value_or(default_timeout)},
                               hub_->job_state)};
}

inline void SimulatedJob::end(SimulatedSeconds time) {
    const std::lock_guard lock(mutex_);
    end_ = std::max(end_, time);
}

}  // namespace DPTK_NAMESPACE::detail
