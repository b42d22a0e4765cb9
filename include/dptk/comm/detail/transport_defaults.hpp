/// Defaults for transports without an allocator or a control plane of their own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Allocates zeroed memory, aligned to 64 bytes.
[[nodiscard]] std::shared_ptr<void> allocate_aligned(std::size_t bytes);

/// What a transport without a control plane of its own says about itself.
struct OwnTransport {
    int rank;
    int size;
    std::string backend;
    /// Whether its waits end when the job fails.
    bool is_interruptible;
};

/// Creates the control plane of such a transport. If the options name a store or an init method, the
/// processes report failures to each other through it: collective, and blocks as init_process_group() does.
/// Otherwise the control plane only enforces time limits.
[[nodiscard]] std::shared_ptr<ControlPlane> control_of_own(const OwnTransport& transport,
                                                           const InitOptions& options);

/// Returns the transport's control plane, or creates one if the transport has none.
template <Transport T>
[[nodiscard]] std::shared_ptr<ControlPlane> control_of(const T& transport, const InitOptions& options = {}) {
    if constexpr (HasControl<T>) {
        return transport.control();
    } else {
        return control_of_own({.rank = transport.rank(),
                               .size = transport.size(),
                               .backend = std::string(transport.backend()),
                               .is_interruptible = Interruptible<T>},
                              options);
    }
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/transport_defaults.ipp"
#endif
