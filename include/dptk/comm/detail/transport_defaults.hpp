/// Defaults for transports without an allocator or a control plane of their own.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// Allocates zeroed memory, aligned to 64 bytes.
[[nodiscard]] std::shared_ptr<void> allocate_aligned(std::size_t bytes);

/// Returns the transport's control plane. If the transport has none, creates a control plane that has no
/// store and only enforces timeouts.
template <Transport T>
[[nodiscard]] std::shared_ptr<ControlPlane> control_of(const T& transport) {
    if constexpr (HasControl<T>) {
        return transport.control();
    } else {
        const int rank = transport.rank();
        return ControlPlane::make({.rank = rank,
                                   .size = transport.size(),
                                   .last_resort =
                                       [rank](const std::string& cause) {
                                           log(LogLevel::error, rank, "ends the process: " + cause);
                                           std::_Exit(EXIT_FAILURE);
                                       }},
                                  std::make_shared<JobState>());
    }
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/transport_defaults.ipp"
#endif
