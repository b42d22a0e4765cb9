// Runs a test over the shared-memory transport, in threads that pretend to be on several hosts.
#pragma once

#include <doctest/doctest.h>
#include <dptk/comm/shm.hpp>
#include <dptk/comm/thread.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// Runs fn(ProcessGroup&) in one rank per entry of `hosts`, which names the rank's host. Each host has
/// `processors` processors.
template <class Fn>
void launch_on_hosts(const std::vector<std::string>& hosts, Fn&& fn,
                     std::optional<int> processors = std::nullopt) {
    const dptk::detail::ThreadJob job(static_cast<int>(hosts.size()), {});
    dptk::launch_threads(job.size, [&](dptk::ProcessGroup& outer) {
        const auto rank = static_cast<std::size_t>(outer.rank());
        try {
            dptk::ShmTransport transport(job.transport(outer.rank()),
                                         {.host = hosts[rank], .processors = processors});
            const std::set<std::string> different(hosts.begin(), hosts.end());
            CHECK(transport.shares_memory() == (different.size() < hosts.size()));
            dptk::ProcessGroup group(dptk::ShmCommunicator(std::move(transport)));
            fn(group);
        } catch (const std::exception& error) {
            job.job_state->fail(error.what());
            throw;
        }
    });
}

}  // namespace test
