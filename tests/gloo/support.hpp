// Ranks over Gloo: as threads of this process, or as processes of their own.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dptk/comm/algorithms/run.hpp>
#include <dptk/comm/gloo/transport.hpp>
#include <dptk/control/store/in_process_store.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"
#include "support/transport_tests.hpp"

namespace test {

using namespace std::chrono_literals;

/// State that the ranks of one job share.
struct Job {
    int size = 1;
    std::shared_ptr<dptk::Store> store = std::make_shared<dptk::InProcessStore>();
    /// Shared by all ranks, as if the control plane reported a failure to each rank at once.
    std::shared_ptr<dptk::detail::JobState> job_state = std::make_shared<dptk::detail::JobState>();
    std::chrono::milliseconds timeout = 60s;

    [[nodiscard]] dptk::GlooOptions options(int rank) const {
        return {.rank = rank, .size = size, .store = store, .interface = "127.0.0.1", .timeout = timeout};
    }

    /// Creates the transport of a rank whose calls end if the job fails.
    [[nodiscard]] std::unique_ptr<dptk::Transport> connect(int rank) const {
        return dptk::detail::GlooFactory::make(
            options(rank),
            dptk::detail::ControlPlane::make({.rank = rank, .size = size, .timeout = timeout}, job_state));
    }
};

inline void all_reduce(dptk::Transport& on, const dptk::Buffer& data, dptk::ReduceOp op) {
    on.run({.verb = dptk::Verb::all_reduce, .input = data, .output = data, .reduction = op});
}

inline void broadcast(dptk::Transport& on, const dptk::Buffer& data, int root) {
    on.run({.verb = dptk::Verb::broadcast, .input = data, .output = data, .root = root});
}

inline void all_gather(dptk::Transport& on, const dptk::Buffer& input, const dptk::Buffer& output) {
    on.run({.verb = dptk::Verb::all_gather, .input = input, .output = output});
}

inline void all_to_all(dptk::Transport& on, const dptk::Buffer& input, const dptk::Buffer& output) {
    on.run({.verb = dptk::Verb::all_to_all, .input = input, .output = output});
}

inline void barrier(dptk::Transport& on) {
    on.run({.verb = dptk::Verb::barrier});
}

/// Runs fn(transport) on each rank of the job, each in a thread. Every exception is a failure of the test.
template <class Fn>
void on_ranks(const Job& job, Fn&& fn) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                const std::unique_ptr<dptk::Transport> owner = job.connect(rank);
                dptk::Transport& transport = *owner;
                fn(transport);
                transport.leave();
            } catch (const std::exception& error) {
                job.job_state->fail(error.what());
                FAIL_CHECK("rank " << rank << ": " << error.what());
            }
        });
    }
}

}  // namespace test
