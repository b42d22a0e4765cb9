#pragma once

#include "dptk/comm/init.hpp"

#include <optional>
#include <string>
#include <string_view>

#include "dptk/comm/detail/elastic_process.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/comm/shm/settings.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE std::string registered_names() {
    std::string names;
    for (const TransportEntry& entry : registered_transports()) {
        names += names.empty() ? "" : ", ";
        names += entry.name;
    }
    return names.empty() ? "none" : names;
}

[[nodiscard]] DPTK_INLINE std::string include_advice(std::string_view header) {
    return text("Include <dptk/comm/", header,
                "> in a source file that is linked into the program itself "
                "(an unreferenced object in a static or as-needed library is left out)");
}

[[nodiscard]] DPTK_INLINE std::string no_transport_text(const JobRequest& request) {
    const LaunchEnvironment& launch = request.launch;
    const std::string start = text("rank ", launch.rank, ": started as one of ", launch.world_size,
                                   " ranks by ", launch.source, ", but ");
    const std::string registered = ". Registered transports: " + registered_names() + ". ";
    if (!request.backend.empty()) {
        return start + "the requested backend " + request.backend +
               " is not registered in this program or does not support that launcher" + registered +
               include_advice(request.backend + ".hpp");
    }
    const bool by_mpi = request.method.rendezvous == RendezvousKind::mpi || launch.launcher == Launcher::mpi;
    const std::string slurm = launch.launcher == Launcher::slurm
                                  ? ". For MPI, srun needs --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)"
                                  : "";
    return start + "no transport in this program supports that launcher" + registered +
           include_advice(by_mpi ? "mpi.hpp" : "tcp.hpp") + slurm;
}

[[nodiscard]] DPTK_INLINE ProcessGroup connect(const JobRequest& request) {
    if (ElasticProcess::serves(request)) return ElasticProcess::join(request);
    if (const std::optional<TransportEntry> transport = choose_transport(request))
        return transport->create(request);
    if (request.launch.world_size > 1 || (!request.backend.empty() && request.backend != "self")) {
        throw ArgumentError(no_transport_text(request));
    }
    check_own_settings();
    static_cast<void>(debug_level());
    if (!has_logged_single_rank.exchange(true) && request.launch.launcher == Launcher::none)
        log(LogLevel::info, 0, "no launcher detected: this process is a group of one rank");
    return SelfCommunicator(SelfTransport(request.timeout));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ProcessGroup init_process_group(const InitOptions& options) {
    ProcessGroup group = detail::connect(resolve(options));
    detail::DefaultGroup& last = detail::default_group();
    const std::lock_guard lock(last.mutex);
    last.control = group.engine().control()->weak_from_this();
    return group;
}

DPTK_INLINE bool is_initialized() {
    detail::DefaultGroup& last = detail::default_group();
    const std::lock_guard lock(last.mutex);
    const std::shared_ptr<detail::ControlPlane> control = last.control.lock();
    return control && !control->has_left();
}

}  // namespace DPTK_NAMESPACE
