#pragma once

#include "dptk/comm/detail/transport_defaults.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "dptk/control/health/job_state.hpp"
#include "dptk/control/launch/detail/join_job.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    constexpr std::size_t address_space = std::size_t{1} << 48;
    if (bytes > address_space) throw std::bad_alloc();
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);
    return {memory, [](void* pointer) { std::free(pointer); }};
}

/// Throws ArgumentError if the options contradict the transport.
DPTK_INLINE void check_options(const OwnTransport& transport, const InitOptions& options) {
    const std::string start =
        text("rank ", transport.rank, ": the transport ", transport.backend, " is rank ", transport.rank,
             " of ", transport.size, ", but the options have ");
    if (options.rank && options.rank != transport.rank)
        throw ArgumentError(text(start, "rank ", *options.rank));
    if (options.world_size && options.world_size != transport.size)
        throw ArgumentError(text(start, "world size ", *options.world_size));
    if (!options.backend.empty() && options.backend != transport.backend)
        throw ArgumentError(text(start, "the backend ", options.backend));
    if (parse_init_method(options.init_method).rendezvous == RendezvousKind::mpi)
        throw ArgumentError(text(start, "the init method ", options.init_method,
                                 ": expected env://, tcp://, file:// or slurm://, or a store"));
}

DPTK_INLINE std::shared_ptr<ControlPlane> control_of_own(const OwnTransport& transport,
                                                         const InitOptions& options) {
    check_options(transport, options);
    InitOptions complete = options;
    complete.rank = transport.rank;
    complete.world_size = transport.size;
    JobRequest request = resolve(complete);
    ControlPlaneOptions plane{.rank = transport.rank, .size = transport.size, .timeout = request.timeout};
    if (!transport.is_interruptible) {
        plane.last_resort = [rank = transport.rank](const std::string& cause) {
            log(LogLevel::error, rank, "ends the process: " + cause);
            std::_Exit(EXIT_FAILURE);
        };
    }
    const auto job_state = std::make_shared<JobState>();
    const bool has_store = options.store || !options.init_method.empty();
    if (!has_store) return ControlPlane::make(std::move(plane), job_state);
    return join_job(request, std::move(plane), job_state).control;
}

}  // namespace DPTK_NAMESPACE::detail
