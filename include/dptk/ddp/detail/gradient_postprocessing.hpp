/// Gradient clipping and unscaling between synchronize() and the optimizer's step, in host memory or on
/// devices.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/device_clipping.hpp"
#include "dptk/ddp/detail/gradient_steps.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

/// Applies to all gradients that are in buckets and have an address. Re-reads the addresses in each call.
/// DistributedDataParallel documents each call.
class GradientPostprocessing {
  public:
    /// All arguments must outlive this object.
    GradientPostprocessing(ProcessGroup& group, ModelParameters& parameters, const BucketSet& buckets,
                           const GradientSteps& steps)
        : group_(group), parameters_(parameters), buckets_(buckets), steps_(steps) {}

    GradientNorm clip_norm(double max_norm, double norm_type);

    void clip_value(double limit);

    [[nodiscard]] bool unscale(double scale);

  private:
    /// Divides this rank's gradients. Returns whether all were finite.
    [[nodiscard]] bool unscale_own(double scale);

    /// Returns whether the gradient exists: a lazy gradient that no rank has used does not.
    [[nodiscard]] bool has(std::size_t i) const;

    /// Returns where the last step has left the average of gradient `i`.
    [[nodiscard]] Buffer average(std::size_t i) const;

    /// Returns all averages, valid until the next call. Throws ArgumentError if one is on a device and there
    /// are no lanes.
    [[nodiscard]] std::span<const Buffer> averages();

    [[nodiscard]] DeviceClipping& clipping();

    void check_not_captured(std::string_view what) const;

    ProcessGroup& group_;
    ModelParameters& parameters_;
    const BucketSet& buckets_;
    const GradientSteps& steps_;
    std::optional<DeviceClipping> clipping_;
    std::vector<Buffer> averages_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_postprocessing.ipp"
#endif
