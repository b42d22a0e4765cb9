/// init_process_group finds out how this process was started and connects it with its peers.
#pragma once

#include <string>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/control/launch.hpp"

namespace dptk {

namespace detail {

[[nodiscard]] inline std::string no_transport_text(const LaunchEnvironment& launch) {
    std::string registered;
    for (const TransportEntry& entry : registered_transports()) {
        registered += registered.empty() ? "" : ", ";
        registered += entry.name;
    }
    std::string out =
        text("rank ", launch.rank, ": started as one of ", launch.world_size, " ranks by ", launch.source,
             ", but no transport in this program serves that launcher. Registered: ",
             registered.empty() ? "none" : registered, ". ");
    if (launch.launcher == Launcher::mpi || launch.launcher == Launcher::slurm) {
        out +=
            "Include <dptk/comm/mpi.hpp> in a source file that is linked into the program itself "
            "(an unreferenced object in a static or as-needed library is left out)";
    } else {
        out += "Start the program with mpirun and include <dptk/comm/mpi.hpp>";
    }
    return out;
}

}  // namespace detail

/// The group of all ranks that the launcher started; of one rank where there is no launcher. Collective:
/// every process calls it, and it blocks until all have. From the main thread.
///
/// Throws ArgumentError where the launcher's variables are malformed or contradict each other, or where no
/// registered transport serves a launcher with several ranks; BackendError where the launcher belongs to
/// another MPI than the one this program is linked with.
[[nodiscard]] inline ProcessGroup init_process_group() {
    const LaunchEnvironment launch = read_launch_environment();
    for (const TransportEntry& entry : registered_transports()) {
        if (entry.serves(launch)) return entry.create(launch);
    }
    if (launch.world_size > 1) throw ArgumentError(detail::no_transport_text(launch));
    return SelfCommunicator(SelfTransport{});
}

}  // namespace dptk
