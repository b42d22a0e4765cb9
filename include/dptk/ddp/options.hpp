/// How gradients are reduced: the options of DistributedDataParallel, under PyTorch's names where PyTorch has
/// them.
#pragma once

#include <cstdint>
#include <optional>

namespace dptk {

/// When a gradient may travel.
enum class Ready : std::uint8_t {
    /// All are ready when synchronize() is called.
    at_synchronize,
    /// Each is announced by mark_ready(i) or mark_unused(i), and buckets travel while backward goes on.
    marked,
};

/// Equal on all ranks.
struct DistributedDataParallelOptions {
    /// A bucket travels when its gradients reach this size, in MiB. Default: 25.
    std::optional<double> bucket_cap_mb = std::nullopt;
    /// The same for the first bucket to leave. Default: 1 where bucket_cap_mb is left at its default, else
    /// equal to it.
    std::optional<double> first_bucket_mb = std::nullopt;
    Ready ready = Ready::at_synchronize;
};

}  // namespace dptk
