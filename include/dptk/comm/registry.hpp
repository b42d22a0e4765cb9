/// The transports that this program has included. A transport's header registers itself here, and
/// init_process_group looks here for one that serves the launcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/named_entries.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

class ProcessGroup;

/// How well a transport fits what a program asks for.
enum class Fit : std::uint8_t {
    none,      ///< it cannot connect these ranks
    possible,  ///< it can
    natural,   ///< it is made for them
};

/// A group over some ranks of a job that is connected already, perhaps by another transport.
struct SubgroupRequest {
    int rank = 0;  ///< This process's, in the new group.
    /// Of the ranks, in the group's order.
    std::vector<std::string> hosts;
    detail::ChannelIdentity identity;  ///< The group's name, number and deadline.
    detail::ChannelJob job;            ///< The job that the group belongs to.
};

/// A transport as its header registers it.
struct TransportEntry {
    std::string_view name;  ///< What InitOptions::backend calls it.
    /// Whether this transport connects such ranks. May initialise its library.
    Fit (*fit)(const JobRequest&);
    /// Connects them. Collective; throws where the launcher and the transport do not go together.
    ProcessGroup (*create)(const JobRequest&);
    /// Connects some ranks of another transport's job, which has a store. Collective among them. Null where
    /// it can only connect its own.
    std::unique_ptr<detail::Channel> (*create_subgroup)(const SubgroupRequest&) = nullptr;
};

namespace detail {

DPTK_EXPORT inline NamedEntries<TransportEntry>& transport_registry() {
    static NamedEntries<TransportEntry> registry;
    return registry;
}

}  // namespace detail

/// Adds a transport, unless one of its name is there: several shared libraries may include the same header.
bool register_transport(const TransportEntry& entry);

namespace detail {

[[nodiscard]] const TransportEntry* find_transport(const std::vector<TransportEntry>& entries,
                                                   std::string_view name);

}  // namespace detail

/// All transports whose headers the program includes.
[[nodiscard]] std::vector<TransportEntry> registered_transports();

/// Whether the program includes <dptk/comm/mpi.hpp>.
[[nodiscard]] bool is_mpi_available();

/// Whether the program includes <dptk/comm/gloo.hpp>.
[[nodiscard]] bool is_gloo_available();

/// Whether the program includes <dptk/comm/nccl.hpp>.
[[nodiscard]] bool is_nccl_available();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/registry.ipp"
#endif
