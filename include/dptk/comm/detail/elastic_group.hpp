/// Elastic group: the part of a process group that outlives the generations of an elastic job. It forms the
/// group again, in place, whenever the members of the job change.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/elastic/membership.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ElasticGroup {
  public:
    /// Returns whether the request is that of an elastic job.
    [[nodiscard]] static bool serves(const JobRequest& request);

    /// Joins the job. Does not wait for other processes: the group has one rank until the first reform(), so
    /// that the loss of a process that still loads its data does not concern others.
    [[nodiscard]] static ProcessGroup join(const JobRequest& request);

    /// Returns the elastic part of a group. Throws ArgumentError if it has none.
    [[nodiscard]] static ElasticGroup& of(const ProcessGroup& group);

    /// Returns whether reform() has returned for the group's current members.
    [[nodiscard]] static bool is_complete(const ProcessGroup& group);

    /// Returns the number and the members of the group's current generation.
    [[nodiscard]] static const Generation& generation(const ProcessGroup& group);

    /// Notes that the group has completed its work, so that nobody joins any more.
    static void finish(const ProcessGroup& group);

    /// Forms the group again, in place, if its members have changed, and calls exchange_state(); both as
    /// often as needed.
    static void reform(ProcessGroup& group, const std::function<void()>& exchange_state);

  private:
    explicit ElasticGroup(const JobRequest& request);

    [[nodiscard]] static std::shared_ptr<Store> open_store(const JobRequest& request,
                                                           const std::string& address,
                                                           std::chrono::milliseconds timeout);

    /// Returns whether a member of the group was lost, leaves or joins, or this process has not joined yet.
    [[nodiscard]] bool has_changed(const ProcessGroup& group) const;

    /// Votes for the next generation and connects its members, as often as needed.
    [[nodiscard]] ProcessGroup connect();

    JobRequest request_;
    Membership membership_;
    bool is_complete_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/elastic_group.ipp"
#endif
