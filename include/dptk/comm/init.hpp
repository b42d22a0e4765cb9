/// init_process_group detects the launcher (mpirun, torchrun, dptk-run, SLURM) and connects this process with
/// the other ranks, as torch.distributed.init_process_group does.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The control plane of the group that the last call of init_process_group has returned.
struct DefaultGroup {
    std::mutex mutex;
    std::weak_ptr<ControlPlane> control;
};

DPTK_EXPORT inline DefaultGroup& default_group() {
    static DefaultGroup& group = *new DefaultGroup;
    return group;
}

/// Whether this process has logged that it is a group of one rank.
inline std::atomic<bool> has_logged_single_rank = false;

}  // namespace detail

/// Creates the group of all ranks that the launcher has started, or that the options describe. If there is no
/// launcher, and the options describe no ranks, the group has one rank. Collective: every process makes this
/// call, from its main thread. Blocks until all processes have made the call, for at most the timeout.
///
/// All errors are thrown on every rank, within seconds of the cause. Throws ArgumentError if values are
/// invalid or contradict each other, or if no registered transport supports the launcher. Throws
/// MismatchError if two processes have the same rank, or disagree about the world size or the version of
/// dptk. Throws TimeoutError, with the missing ranks, if not all ranks arrive in time. Throws BackendError if
/// the launcher belongs to another MPI implementation than the one that this program is linked with.
[[nodiscard]] ProcessGroup init_process_group(const InitOptions& options = {});

/// Returns whether the group that the last init_process_group call has returned is still open. The group may
/// have been moved to another variable.
[[nodiscard]] bool is_initialized();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/init.ipp"
#endif
