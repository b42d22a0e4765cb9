/// Options of one call of a group.
#pragma once

#include <chrono>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

/// Options of one collective or message: group.all_reduce(data, {.stream = stream}).
struct CallOptions {
    /// The CUDA stream in which a call on device memory is ordered. Calls on host memory ignore it.
    StreamRef stream = {};
    /// The algorithm of an all_reduce on host memory; other calls ignore it. All ranks must pass the same
    /// one. `automatic` means the group's: see set_all_reduce_algorithm().
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
    /// The time limit of the call; 0 means the group's. If the call has not completed by then, it throws
    /// TimeoutError, and the group cannot be used any more. Limits are checked at least twice per second.
    /// Calls on device memory over NCCL have the group's limit.
    std::chrono::milliseconds timeout{0};
};

}  // namespace DPTK_NAMESPACE
