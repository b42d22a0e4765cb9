// The members of an elastic job: gives each process that dptk-run starts its number, and reports its end to
// the others. On one of the hosts, serves the job's store, and forms the groups of its ranks.
#pragma once

#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/launch/detail/rank_environment.hpp>
#include <dptk/control/process/child_process.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job.hpp"

namespace run {

class ElasticMembers {
  public:
    /// Serves the store, or connects to the host that serves it. Blocks for at most DPTK_TIMEOUT. Throws
    /// dptk::Error if neither is possible.
    explicit ElasticMembers(const Job& job);

    /// Returns the number of this host: that of its arrival, from 0.
    [[nodiscard]] int node() const noexcept { return node_; }

    /// Returns a number for a process.
    [[nodiscard]] dptk::detail::MemberId add();

    /// Returns the variables that a process needs besides those of its rank.
    [[nodiscard]] std::vector<dptk::detail::EnvironmentVariable> environment(
        dptk::detail::MemberId member) const;

    /// Reports the end of a process to the others.
    void note_end(dptk::detail::MemberId member, const dptk::detail::ChildEnd& end);

    /// Forms the next group if that is due. Call it often.
    void look();

    /// Returns why the job has ended although ranks are left; empty while it continues.
    [[nodiscard]] std::string over();

    /// Whether the job has ended for the ranks that are left because all others have completed the program.
    [[nodiscard]] bool others_have_finished();

    /// Whether the first group has been formed.
    [[nodiscard]] bool has_begun();

    /// Whether a process of any host has completed the program.
    [[nodiscard]] bool has_finished();

    /// Whether this host serves the store for processes of other hosts.
    [[nodiscard]] bool is_needed() const;

  private:
    [[nodiscard]] static std::unique_ptr<dptk::TcpStoreServer> serve(const Job& job);
    [[nodiscard]] std::shared_ptr<dptk::Store> open_store(const Job& job);

    /// Calls the store. If it is lost, the job is over.
    template <class Call>
    void with_store(Call&& call);

    std::unique_ptr<dptk::TcpStoreServer> server_;  // null on the other hosts
    dptk::TcpStoreAddress address_;
    std::shared_ptr<dptk::Store> store_;
    std::optional<dptk::detail::MembershipMonitor> monitor_;  // where the store is served
    int node_ = 0;
    dptk::detail::MemberId reserved_ = 0;  // the first numbers
    dptk::detail::MemberId given_ = 0;     // how many of them have been given to processes
    std::string lost_;                     // why the store is lost
};

}  // namespace run
