/// Options of DistributedDataParallel, with PyTorch's names where PyTorch has the option.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/ddp/buffer_source.hpp"

namespace DPTK_NAMESPACE {

/// When a gradient may be sent.
enum class Ready : std::uint8_t {
    /// All gradients are ready when synchronize() is called.
    at_synchronize,
    /// Each gradient is reported by mark_ready(i) or mark_unused(i). Buckets are sent while backward runs,
    /// if the processors allow it: see docs/ddp.md.
    marked,
};

/// How the program's loss, and so each gradient, combines the samples of a rank: see `reduction` of PyTorch's
/// losses.
enum class LossReduction : std::uint8_t {
    mean,  ///< Gradients are means over the rank's samples; the result is the mean over all ranks' samples.
    sum,   ///< Gradients are sums over the rank's samples; the result is the sum over all ranks' samples.
};

/// Whether the step of a ShardedOptimizer computes the averages as well. The results have the same bits. If
/// all ranks share one host's memory, a fused step averages each piece of the parameters, steps it, and
/// writes it to all ranks while it is in the processor's caches; otherwise these phases run one after the
/// other. Nothing overlaps backward.
enum class FusedStep : std::uint8_t {
    automatic,  ///< If all ranks share memory, unless marked gradients can be sent during backward.
    yes,
    no,
};

/// Options of DistributedDataParallel. They must be equal on all ranks, except `stream`.
struct DistributedDataParallelOptions {
    /// The bucket size, in MiB, at which a bucket is complete. Default: 25.
    std::optional<double> bucket_cap_mb = std::nullopt;
    /// The size, in MiB, of the first bucket that is sent. Default: bucket_cap_mb if that is set, otherwise
    /// 1.
    std::optional<double> first_bucket_mb = std::nullopt;
    /// When a gradient may be sent: see Ready.
    Ready ready = Ready::at_synchronize;
    /// Whether gradients are means or sums over a rank's samples. With LossReduction::sum, ranks without
    /// sample counts or with uneven ones need no weights, and gradients of 0 samples count as zeros.
    LossReduction loss_reduction = LossReduction::mean;
    /// The model's state besides its parameters, such as BatchNorm's statistics. With broadcast_buffers,
    /// all ranks receive rank 0's buffers at the beginning of each step. Buffers must be all in host
    /// memory, or all on devices. Buffers on devices require that all gradients are on devices, with a
    /// gradient on each buffer's device. If rank 0 then makes a mistake, the other ranks' buffers are
    /// unspecified.
    std::optional<BufferSource> buffers = std::nullopt;
    /// Whether all ranks receive rank 0's buffers at the beginning of each step.
    bool broadcast_buffers = true;
    /// Under Ready::marked: treats a gradient that is not marked before synchronize() as unused, instead of
    /// as an error. The gradient of a parameter that no rank uses is left unchanged; if only some ranks use
    /// a parameter, the others contribute zeros. Costs a collective with one byte per parameter.
    bool find_unused_parameters = false;
    /// Promises that the same parameters are used in each step, so that find_unused_parameters checks only
    /// the first step.
    bool static_graph = false;
    /// Requires that gradients lie in the memory that gradient_memory(i) returns. A gradient at another
    /// address makes synchronize() throw ArgumentError.
    bool gradient_as_bucket_view = false;
    /// Sends and averages 16-bit gradients in f32. The averages then lie in memory of
    /// DistributedDataParallel, to which parameters() refers, and the program's own gradients are unchanged.
    /// Buckets are not rebuilt. On devices this requires dptk's CUDA kernels. Not for ShardedOptimizer, nor
    /// together with gradient_as_bucket_view.
    bool reduce_in_f32 = false;
    /// Whether all ranks receive rank 0's values at construction.
    bool init_sync = true;
    /// Compares the values of all parameters between the ranks in every Nth step; 0 never does, and costs
    /// nothing. If they differ in any bit, all ranks throw MismatchError, which names the step, the first
    /// parameter that differs, and the ranks; if steps run on devices, the next synchronize() throws. The
    /// comparison reads all values, and adds no message if gradients are in host memory. Default: 100 if
    /// DPTK_DEBUG is set, otherwise 0.
    std::optional<std::size_t> verify_parameters_every = std::nullopt;
    /// The stream on which gradients in device memory are computed and used. Default: the default stream.
    /// The stream must outlive the DistributedDataParallel, and is not compared between ranks.
    StreamRef stream = {};
    /// Names of parameters that are neither broadcast at construction nor averaged.
    std::vector<std::string> parameters_to_ignore = {};
};

namespace detail {

[[nodiscard]] constexpr std::string_view fused_step_name(FusedStep fused_step) noexcept {
    constexpr std::string_view names[] = {"automatic", "yes", "no"};
    return names[static_cast<std::size_t>(fused_step)];
}

/// Returns the options with the buffers of the model, if they have none.
template <class Model>
[[nodiscard]] DistributedDataParallelOptions with_buffers_of(Model& model,
                                                             DistributedDataParallelOptions options) {
    if (!options.buffers) options.buffers = buffers_of_model(model);
    return options;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
