// Ranks that share memory, as threads: every verb on one host and on several, in shared memory and in their
// own.
#include <doctest/doctest.h>
#include <dptk/comm/node.hpp>
#include <dptk/comm/thread.hpp>

#include <numeric>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

namespace {

using NodeThreads = dptk::NodeTransport<dptk::ThreadTransport>;

/// Runs fn(ProcessGroup&) as ranks on so many hosts, the first of which has the first ones.
template <class Fn>
void launch_on_hosts(const std::vector<std::string>& hosts, Fn&& fn) {
    const dptk::detail::ThreadJob job(static_cast<int>(hosts.size()), {});
    dptk::launch_threads(static_cast<int>(hosts.size()), [&](dptk::ProcessGroup& outer) {
        const auto rank = static_cast<std::size_t>(outer.rank());
        try {
            dptk::ProcessGroup group(dptk::NodeCommunicator<dptk::ThreadTransport>(
                NodeThreads(job.transport(outer.rank()), {.host = hosts[rank]})));
            fn(group);
        } catch (const std::exception& error) {
            job.health->fail(error.what());
            throw;
        }
    });
}

const std::vector<std::vector<std::string>> places = {{"a"},
                                                      {"a", "a"},
                                                      {"a", "b"},
                                                      {"a", "a", "a"},
                                                      {"a", "a", "b", "b"},
                                                      {"a", "b", "a", "b"},
                                                      {"a", "a", "a", "b"},
                                                      {"a", "a", "a", "a", "b", "b", "c", "c"}};

}  // namespace

TEST_CASE("every verb over shared memory") {
    for (const auto& hosts : places) {
        CAPTURE(hosts.size());
        launch_on_hosts(hosts, [](dptk::ProcessGroup& group) {
            test::check_verbs(group);
            test::check_allocated_memory(group);
        });
    }
}
