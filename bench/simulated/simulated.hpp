/// Ranks that are threads of one process, and whose messages take the time that a network would:
/// launch_simulated(network, fn) runs fn as the ranks of a SimulatedNetwork. For comparing algorithms, bucket
/// sizes and networks that one does not have, and for seeing what overlap hides.
///
/// Collectives are carried out by the algorithms of comm/algorithms/, over send and recv. Messages are
/// copied, and wait for nobody: send returns when the rank's link is free again.
///
/// Overlap of collectives shows in real time alone, where background work takes time but no CPU. In virtual
/// time, one that was started is carried out when somebody waits for it, or asks whether it is done, and
/// takes its time then; where several groups have some, all ranks must wait for them in the same order.
/// Messages that were started go on in both kinds of time.
///
/// Virtual times depend on nothing but the program, unless it asks for a message from any rank, or whether
/// one has come. A loop that asks must compute meanwhile, since virtual time passes by compute() and messages
/// alone.
///
/// What counts are bytes over bytes per second: a buffer of a thousandth of the size, over links of a
/// thousandth of the bandwidth, takes the same time, and lets a thousand ranks have their buffers in one
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

/// One rank of a simulated network. launch_simulated makes them, and gives fn each as a ProcessGroup.
using SimulatedCommunicator = BasicCommunicator<SimulatedTransport>;

namespace detail {

/// What the ranks of one launch_simulated share.
class SimulatedJob {
  public:
    SimulatedJob(const SimulatedNetwork& network, ThreadOptions options)
        : network_(network), options_(options) {}

    /// Joins a thread rank, whose job's health becomes the network's.
    [[nodiscard]] std::shared_ptr<SimulatedRank> join(int rank, const std::shared_ptr<JobState>& job_state);

    [[nodiscard]] SimulatedTransport transport(const std::shared_ptr<SimulatedRank>& self) const;

    void end(SimulatedSeconds time);

    /// Of the rank that ended last.
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

/// Runs fn(ProcessGroup&, SimulatedClock&), or fn(ProcessGroup&), as the ranks of the network, one thread
/// each. Returns the time at which the last of them came to the end of fn.
///
/// Exceptions are those of launch_threads. Throws ArgumentError for a network without ranks, and for
/// latencies and bandwidths that cannot be.
template <class Fn>
SimulatedSeconds launch_simulated(const SimulatedNetwork& network, Fn&& fn, ThreadOptions options = {}) {
    detail::check_network(network);
    detail::SimulatedJob job(network, options);
    const auto run_rank = [&](ProcessGroup& group) {
        const std::shared_ptr<detail::SimulatedRank> self =
            job.join(group.rank(), group.channel().control().job_state());
        group = SimulatedCommunicator(job.transport(self));  // what launch_threads holds, and closes
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
    return {
        hub_, self,
        ControlPlane::make(
            {.rank = self->number, .size = network_.ranks(), .store = store_, .timeout = options_.timeout},
            hub_->job_state)};
}

inline void SimulatedJob::end(SimulatedSeconds time) {
    const std::lock_guard lock(mutex_);
    end_ = std::max(end_, time);
}

}  // namespace DPTK_NAMESPACE::detail
