/// init_process_group finds out how this process was started and connects it with its peers.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/job_request.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

[[nodiscard]] inline std::string include_advice(std::string_view header) {
    return text("Include <dptk/comm/", header,
                "> in a source file that is linked into the program itself "
                "(an unreferenced object in a static or as-needed library is left out)");
}

[[nodiscard]] std::string no_transport_text(const JobRequest& request);

/// The registered transport that fits best; those of another name than the backend that is asked for do not.
[[nodiscard]] std::optional<TransportEntry> choose_transport(const JobRequest& request);

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
[[nodiscard]] ProcessGroup init_process_group(const InitOptions& options = {});

/// Whether the group that init_process_group has given last is still open, in whatever variable.
[[nodiscard]] bool is_initialized();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/init.ipp"
#endif
