/// The transports that this program has included. A transport's header registers itself here, and
/// init_process_group looks here for one that serves the launcher.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/job_request.hpp"
#include "dptk/core/export.hpp"

namespace dptk {

/// How well a transport fits what a program asks for.
enum class Fit : std::uint8_t {
    none,      ///< it cannot connect these ranks
    possible,  ///< it can
    natural,   ///< it is made for them
};

struct TransportEntry {
    std::string_view name;
    /// Whether this transport connects such ranks. May initialise its library.
    Fit (*fit)(const JobRequest&);
    /// Connects them. Collective; throws where the launcher and the transport do not go together.
    ProcessGroup (*create)(const JobRequest&);
};

namespace detail {

struct TransportRegistry {
    std::mutex mutex;
    std::vector<TransportEntry> entries;
};

DPTK_EXPORT inline TransportRegistry& transport_registry() {
    static TransportRegistry registry;
    return registry;
}

}  // namespace detail

/// Adds a transport, unless one of its name is there: several shared libraries may include the same header.
inline bool register_transport(const TransportEntry& entry) {
    detail::TransportRegistry& registry = detail::transport_registry();
    const std::lock_guard lock(registry.mutex);
    for (const TransportEntry& other : registry.entries) {
        if (other.name == entry.name) return false;
    }
    registry.entries.push_back(entry);
    return true;
}

[[nodiscard]] inline std::vector<TransportEntry> registered_transports() {
    detail::TransportRegistry& registry = detail::transport_registry();
    const std::lock_guard lock(registry.mutex);
    return registry.entries;
}

}  // namespace dptk
