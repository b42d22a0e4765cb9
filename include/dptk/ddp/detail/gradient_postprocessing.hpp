/// What is done to the averages between synchronize() and the optimizer's step, in host memory or on devices:
/// clipping, and the unscaling of scaled losses.
#pragma once

#include <cstddef>
#include <optional>
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

/// Of all gradients that are in buckets, and known. DistributedDataParallel says what each call does.
class GradientPostprocessing {
  public:
    /// All of them must outlive this.
    GradientPostprocessing(ProcessGroup& group, const ModelParameters& parameters, const BucketSet& buckets,
                           const GradientSteps& steps)
        : group_(group), parameters_(parameters), buckets_(buckets), steps_(steps) {}

    GradientNorm clip_norm(double max_norm, double norm_type);

    void clip_value(double limit);

    [[nodiscard]] bool unscale(double scale);

  private:
    /// A late gradient that no rank has used is not there.
    [[nodiscard]] bool has(std::size_t i) const;

    [[nodiscard]] std::vector<ParameterRef> in_host_memory() const;

    [[nodiscard]] std::vector<Buffer> on_devices() const;

    [[nodiscard]] DeviceClipping& clipping();

    void check_not_captured(std::string_view what) const;

    ProcessGroup& group_;
    const ModelParameters& parameters_;
    const BucketSet& buckets_;
    const GradientSteps& steps_;
    std::optional<DeviceClipping> clipping_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_postprocessing.ipp"
#endif
