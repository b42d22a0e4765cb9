// The members of an elastic job: serves the job's store, forms the groups of its ranks, and gives each
// process that dptk-run starts its number.
#pragma once

#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/launch/detail/rank_environment.hpp>
#include <dptk/control/process/child_process.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <memory>
#include <string>
#include <vector>

#include "job.hpp"

namespace run {

class ElasticMembers {
  public:
    /// Serves the store. Throws dptk::PortInUseError if the port is in use.
    explicit ElasticMembers(const Job& job);

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
    [[nodiscard]] const std::string& over() const noexcept { return monitor_.over(); }

    /// Whether a process has completed the program, so that the job has succeeded.
    [[nodiscard]] bool has_finished() const noexcept { return has_finished_; }

  private:
    dptk::TcpStoreServer server_;
    std::shared_ptr<dptk::Store> store_;
    std::string host_;
    dptk::detail::MembershipMonitor monitor_;
    bool has_finished_ = false;
};

}  // namespace run
