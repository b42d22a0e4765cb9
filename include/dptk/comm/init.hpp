/// init_process_group finds out how this process was started and connects it with its peers.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/job_request.hpp"
#include "dptk/core/export.hpp"
#include "dptk/core/log.hpp"

namespace dptk {

namespace detail {

[[nodiscard]] inline std::string registered_names() {
    std::string names;
    for (const TransportEntry& entry : registered_transports()) {
        names += names.empty() ? "" : ", ";
        names += entry.name;
    }
    return names.empty() ? "none" : names;
}

[[nodiscard]] inline std::string include_advice(std::string_view header) {
    return text("Include <dptk/comm/", header,
                "> in a source file that is linked into the program itself "
                "(an unreferenced object in a static or as-needed library is left out)");
}

[[nodiscard]] inline std::string no_transport_text(const JobRequest& request) {
    const LaunchEnvironment& launch = request.launch;
    const std::string who = text("rank ", launch.rank, ": started as one of ", launch.world_size,
                                 " ranks by ", launch.source, ", but ");
    const std::string registered = ". Registered: " + registered_names() + ". ";
    if (!request.backend.empty()) {
        return who + "the backend " + request.backend +
               " is asked for, and this program has none of that name that serves it" + registered +
               include_advice(request.backend + ".hpp");
    }
    const bool by_mpi = request.method.meeting == Meeting::mpi || launch.launcher == Launcher::mpi;
    const std::string slurm = launch.launcher == Launcher::slurm
                                  ? ". For MPI, srun needs --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)"
                                  : "";
    return who + "no transport in this program serves that launcher" + registered +
           include_advice(by_mpi ? "mpi.hpp" : "gloo.hpp") + slurm;
}

/// The registered transport that fits best; those of another name than the backend that is asked for do not.
[[nodiscard]] inline std::optional<TransportEntry> choose_transport(const JobRequest& request) {
    std::optional<TransportEntry> best;
    Fit best_fit = Fit::none;
    for (const TransportEntry& entry : registered_transports()) {
        if (!request.backend.empty() && request.backend != entry.name) continue;
        const Fit fit = entry.fit(request);
        if (fit <= best_fit) continue;
        best = entry;
        best_fit = fit;
    }
    return best;
}

/// The control plane of the group that init_process_group has given last.
struct DefaultGroup {
    std::mutex mutex;
    std::weak_ptr<ControlPlane> control;
};

DPTK_EXPORT inline DefaultGroup& default_group() {
    static DefaultGroup& group = *new DefaultGroup;
    return group;
}

[[nodiscard]] inline ProcessGroup connect(const JobRequest& request) {
    if (const std::optional<TransportEntry> transport = choose_transport(request))
        return transport->create(request);
    if (request.launch.world_size > 1 || (!request.backend.empty() && request.backend != "self")) {
        throw ArgumentError(no_transport_text(request));
    }
    static const bool said = [&] {
        if (request.launch.launcher == Launcher::none)
            log(LogLevel::info, 0, "no launcher has started this process: it is a group of one rank");
        return true;
    }();
    static_cast<void>(said);
    return SelfCommunicator(SelfTransport{});
}

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
[[nodiscard]] inline ProcessGroup init_process_group(const InitOptions& options = {}) {
    ProcessGroup group = detail::connect(resolve(options));
    detail::DefaultGroup& last = detail::default_group();
    const std::lock_guard lock(last.mutex);
    last.control = group.channel().control().weak_from_this();
    return group;
}

/// Whether the group that init_process_group has given last is still open, in whatever variable.
[[nodiscard]] inline bool is_initialized() {
    detail::DefaultGroup& last = detail::default_group();
    const std::lock_guard lock(last.mutex);
    const std::shared_ptr<ControlPlane> control = last.control.lock();
    return control && !control->has_left();
}

}  // namespace dptk
