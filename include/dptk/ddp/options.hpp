/// How gradients are reduced: the options of DistributedDataParallel, under PyTorch's names where PyTorch has
/// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/ddp/buffer_source.hpp"

namespace DPTK_NAMESPACE {

/// When a gradient may travel.
enum class Ready : std::uint8_t {
    /// All are ready when synchronize() is called.
    at_synchronize,
    /// Each is announced by mark_ready(i) or mark_unused(i), and buckets travel while backward goes on, where
    /// that leaves it its processor: docs/ddp.md.
    marked,
};

/// Equal on all ranks.
struct DistributedDataParallelOptions {
    /// A bucket travels when its gradients reach this size, in MiB. Default: 25.
    std::optional<double> bucket_cap_mb = std::nullopt;
    /// The same for the first bucket to leave. Default: 1 where bucket_cap_mb is left at its default, else
    /// equal to it.
    std::optional<double> first_bucket_mb = std::nullopt;
    /// Whether gradients are marked: see Ready.
    Ready ready = Ready::at_synchronize;
    /// What a model keeps besides its parameters, such as BatchNorm's statistics: where broadcast_buffers is
    /// set, all ranks get rank 0's at the beginning of each step. All in host memory; or all on devices,
    /// where the gradients are there as well, and a mistake of rank 0's leaves the others' unspecified.
    std::optional<BufferSource> buffers = std::nullopt;
    /// Whether all ranks get rank 0's buffers at the beginning of each step.
    bool broadcast_buffers = true;
    /// Under Ready::marked: a gradient that is not marked before synchronize() takes no part in the step,
    /// instead of being an error. One that takes part on no rank is left as it is; one that takes part on
    /// some ranks is averaged, with zeros for the others. Costs a collective of a byte for each parameter.
    bool find_unused_parameters = false;
    /// Promises that the same parameters take part in each step, so that find_unused_parameters looks at the
    /// first one alone.
    bool static_graph = false;
    /// Demands that gradients lie in the memory that gradient_memory(i) gives: another address is an error of
    /// the step.
    bool gradient_as_bucket_view = false;
    /// Whether all ranks get rank 0's values at construction.
    bool init_sync = true;
    /// For gradients in device memory: the stream in which they are computed and used; the default stream
    /// where it is left out. It outlives the DistributedDataParallel. Not compared between ranks.
    StreamRef stream = {};
    /// Names of parameters that are neither sent at construction nor averaged.
    std::vector<std::string> parameters_to_ignore = {};
};

}  // namespace DPTK_NAMESPACE
