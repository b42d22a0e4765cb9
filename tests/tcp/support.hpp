// Ranks over TCP that are threads of this process.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <dptk/comm/tcp.hpp>
#include <dptk/control/store/in_process_store.hpp>
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
    std::chrono::milliseconds timeout = 60s;
    std::chrono::milliseconds heartbeat_timeout = 60s;

    [[nodiscard]] dptk::TcpOptions options(int rank) const {
        return {.rank = rank, .size = size, .store = store, .interface = "127.0.0.1", .timeout = timeout};
    }
};

/// Runs fn(transport) on each rank of the job, each in a thread. Every exception is a failure of the test.
template <class Fn>
void on_transports(const Job& job, Fn&& fn) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                dptk::TcpTransport transport(job.options(rank));
                fn(transport);
            } catch (const std::exception& error) {
                FAIL_CHECK("rank " << rank << ": " << error.what());
            }
        });
    }
}

/// Runs fn(group) on each rank of the job, each in a thread, whose failures end the calls of the others.
template <class Fn>
void on_groups(const Job& job, Fn&& fn) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            dptk::TcpTransport transport(job.options(rank));
            dptk::ProcessGroup group = dptk::TcpCommunicator(
                std::move(transport),
                {.timeout = job.timeout, .heartbeat_timeout = job.heartbeat_timeout, .store = job.store});
            fn(group);
        });
    }
}

}  // namespace test
