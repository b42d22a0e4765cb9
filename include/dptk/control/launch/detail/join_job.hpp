/// join_job(): what connects this process with the other processes of its job, whatever the transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct JoinedJob {
    std::shared_ptr<ControlPlane> control;
    /// Null in a job of one process.
    std::shared_ptr<Store> store = nullptr;
    /// The host of each process, by rank; empty in a job of one process.
    std::vector<std::string> hosts = {};
    /// The network interface of the request or, in a job of several hosts without one, the address at which
    /// other hosts reach this one. Empty if unknown.
    std::string network_interface = {};
};

/// Returns the request with the launcher's rendezvous method, if the program specifies none.
[[nodiscard]] JobRequest with_method(JobRequest request);

/// Performs the rendezvous that `request` describes, and creates the control plane with the store, the time
/// limit and the names of the processes. An uncaught exception of this process is reported to the others.
/// Collective; blocks. Throws as open_rendezvous_store() and rendezvous() do.
[[nodiscard]] JoinedJob join_job(const JobRequest& request, ControlPlaneOptions plane,
                                 const std::shared_ptr<JobState>& job_state);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/join_job.ipp"
#endif
