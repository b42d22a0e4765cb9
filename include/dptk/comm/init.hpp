/// init_process_group finds out how this process was started and connects it with its peers.
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

/// The control plane of the group that init_process_group returned last.
struct DefaultGroup {
    std::mutex mutex;
    std::weak_ptr<ControlPlane> control;
};

DPTK_EXPORT inline DefaultGroup& default_group() {
    static DefaultGroup& group = *new DefaultGroup;
    return group;
}

/// Whether this process has said that it is alone.
inline std::atomic<bool> has_said_alone = false;

}  // namespace detail

/// The group of all ranks that the launcher started, or that the options describe; of one rank where there is
/// neither. Collective: every process calls it, and it blocks until all have, for at most the timeout. From
/// the main thread.
///
/// Throws, on every rank within seconds of the cause: ArgumentError for values that make no sense or
/// contradict each other, or where no registered transport serves; MismatchError where two processes have one
/// rank, or disagree about the world size or the version of dptk; TimeoutError, with the missing ranks, where
/// not all have come; BackendError where the launcher belongs to another MPI than the one this program is
/// linked with.
[[nodiscard]] ProcessGroup init_process_group(const InitOptions& options = {});

/// Whether the group that init_process_group has given last is still open, in whatever variable.
[[nodiscard]] bool is_initialized();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/init.ipp"
#endif
