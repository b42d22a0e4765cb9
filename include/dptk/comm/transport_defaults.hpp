/// What a channel has where its transport brings nothing of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "dptk/comm/transport.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/job_health.hpp"
#include "dptk/core/log.hpp"

namespace dptk::detail {

/// Zeroed, and aligned to 64 bytes.
[[nodiscard]] inline std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    constexpr std::size_t address_space = std::size_t{1} << 48;
    if (bytes > address_space) throw std::bad_alloc();
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);
    return {memory, [](void* pointer) { std::free(pointer); }};
}

/// The deadlines of a transport that brings no control plane of its own.
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
                                  std::make_shared<JobHealth>());
    }
}

}  // namespace dptk::detail
