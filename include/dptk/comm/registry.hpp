/// Registry of the transports that this program includes. Each transport's header registers the transport,
/// and init_process_group selects the one that fits the launcher best.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/detail/named_entries.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

class ProcessGroup;

namespace detail {

class ControlPlane;

}  // namespace detail

/// How well a transport fits a job.
enum class Fit : std::uint8_t {
    none,      ///< The transport cannot connect these ranks.
    possible,  ///< The transport can connect these ranks.
    natural,   ///< The transport is the preferred one for this launcher or request.
};

/// A request for a subgroup of a job that is already connected, possibly by another transport.
struct SubgroupRequest {
    int rank = 0;  ///< This process's rank in the new group.
    /// The hosts of the new group's ranks, by rank.
    std::vector<std::string> hosts;
    detail::ChannelIdentity identity;               ///< The new group's name, ranks in the job, and timeout.
    std::shared_ptr<detail::ControlPlane> control;  ///< The control plane of the group's job.
    std::function<bool()> progress = nullptr;  ///< That of the job's first transport: see Engine::progress().
};

/// A registered transport.
struct TransportEntry {
    std::string_view name;  ///< The name for InitOptions::backend.
    /// Returns how well the transport fits the job. May initialize the transport's library.
    Fit (*fit)(const JobRequest&);
    /// Connects the ranks. Collective; throws if the transport does not support the launcher.
    ProcessGroup (*create)(const JobRequest&);
    /// Connects some ranks of a job that another transport has connected, and that has a store. Collective
    /// among these ranks. Null if the transport can only create subgroups of its own groups.
    detail::EngineOwner (*create_subgroup)(const SubgroupRequest&) = nullptr;
};

namespace detail {

DPTK_EXPORT inline NamedEntries<TransportEntry>& transport_registry() {
    static NamedEntries<TransportEntry> registry;
    return registry;
}

}  // namespace detail

/// Registers a transport, and returns whether it was added. A second transport of the same name is ignored,
/// since several shared libraries may include the same header.
bool register_transport(const TransportEntry& entry);

namespace detail {

[[nodiscard]] const TransportEntry* find_transport(const std::vector<TransportEntry>& entries,
                                                   std::string_view name);

}  // namespace detail

namespace detail {

/// Returns how well a transport fits that connects ranks through a store: best if the program specifies a
/// rendezvous, or if torchrun or dptk-run has started the ranks; not at all for a rendezvous by MPI.
[[nodiscard]] Fit fit_of_store(const JobRequest& request, std::string_view backend);

}  // namespace detail

/// Returns all transports whose headers the program includes.
[[nodiscard]] std::vector<TransportEntry> registered_transports();

/// Returns the registered transport that fits best, or nullopt if none fits. If the request names a backend,
/// considers only this backend.
[[nodiscard]] std::optional<TransportEntry> choose_transport(const JobRequest& request);

/// Returns whether the program includes <dptk/comm/mpi.hpp>.
[[nodiscard]] bool is_mpi_available();

/// Returns whether the program includes <dptk/comm/tcp.hpp>.
[[nodiscard]] bool is_tcp_available();

/// Returns whether the program includes <dptk/comm/gloo.hpp>.
[[nodiscard]] bool is_gloo_available();

/// Returns whether the program includes <dptk/comm/nccl.hpp>.
[[nodiscard]] bool is_nccl_available();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/registry.ipp"
#endif
