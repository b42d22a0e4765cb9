// The members of an elastic job: gives each process that dptk-run starts its number, and reports its end to
// the others. On two of the hosts, serves a store of the job, and forms the groups of its ranks.
#pragma once

#include <dptk/control/elastic/membership_server.hpp>
#include <dptk/control/launch/detail/rank_environment.hpp>
#include <dptk/control/process/child_process.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "job.hpp"
#include "job_store.hpp"
#include "store_watch.hpp"

namespace run {

class ElasticMembers {
  public:
    /// Serves the first store, or connects to the host that serves it. Blocks for at most DPTK_TIMEOUT.
    /// Throws dptk::Error if neither is possible.
    explicit ElasticMembers(const Job& job);
    ElasticMembers(const ElasticMembers&) = delete;
    ElasticMembers& operator=(const ElasticMembers&) = delete;
    ~ElasticMembers();

    /// Returns the number of this host: that of its arrival, from 0.
    [[nodiscard]] int node() const noexcept { return node_; }

    /// Returns a number for a process.
    [[nodiscard]] dptk::detail::MemberId add();

    /// Returns the variables that a process needs besides those of its rank.
    [[nodiscard]] std::vector<dptk::detail::EnvironmentVariable> environment(dptk::detail::MemberId member);

    /// Reports the end of a process to the others.
    void note_end(dptk::detail::MemberId member, const dptk::detail::ChildEnd& end);

    /// Connects the two stores. Call it often.
    void look();

    /// Returns why the job has ended although ranks are left; empty while it continues.
    [[nodiscard]] std::string over();

    /// Whether the job has ended for the ranks that are left because all others have completed the program.
    [[nodiscard]] bool others_have_finished();

    /// Whether the first group has been formed.
    [[nodiscard]] bool has_begun();

    /// Whether a process of any host has completed the program.
    [[nodiscard]] bool has_finished();

    /// Whether this host serves a store for processes of other hosts.
    [[nodiscard]] bool is_needed() const;

  private:
    [[nodiscard]] static std::unique_ptr<dptk::detail::MembershipServer> serve_first(const Job& job);
    [[nodiscard]] static JobStore first_store(const Job& job, const dptk::detail::MembershipServer* server);

    /// Throws ArgumentError if --nnodes does not allow another host.
    void check_number_of_hosts();

    /// Serves the second store if no other host does, and otherwise connects to it.
    void find_second();
    void serve_second();
    void reach_second(const std::string& address);
    void stand_by(const StoreWatch::Seen& first);

    /// The store that the members use: the second one once they have continued there, or if the first one is
    /// lost.
    [[nodiscard]] JobStore& current();

    const Job& job_;
    std::unique_ptr<dptk::detail::MembershipServer> server_;  // null if this host serves no store
    JobStore first_;
    bool serves_second_ = false;
    bool has_begun_ = false;
    bool has_finished_ = false;        // whether a process of this host has
    std::optional<StoreWatch> watch_;  // watches the first store, if another host serves it
    std::optional<JobStore> second_;
    std::string tried_;  // the address of the second store with which this host has tried to connect
    bool can_serve_second_;
    std::set<dptk::detail::MemberId> running_;
    std::string members_;  // the numbers of all processes so far
    std::string copied_;   // the last generation of the first store, of which the second one knows
    int node_ = 0;
    dptk::detail::MemberId reserved_ = 0;  // the first numbers
    dptk::detail::MemberId given_ = 0;     // how many of them have been given to processes
};

}  // namespace run
