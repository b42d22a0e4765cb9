/// What is done to the averages between synchronize() and the optimizer's step, in host memory or on devices:
/// clipping, and the unscaling of scaled losses.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/core/text.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/device_clipping.hpp"
#include "dptk/ddp/gradient_steps.hpp"
#include "dptk/ddp/model_parameters.hpp"

namespace dptk::detail {

/// Of all gradients that are in buckets, and known. DistributedDataParallel says what each call does.
class Averages {
  public:
    /// All of them must outlive this.
    Averages(ProcessGroup& group, const ModelParameters& parameters, const BucketSet& buckets,
             const GradientSteps& steps)
        : group_(group), parameters_(parameters), buckets_(buckets), steps_(steps) {}

    GradientNorm clip_norm(double max_norm, double norm_type) {
        check_norm_type(norm_type);
        if (!steps_.lanes()) return GradientNorm(dptk::clip_grad_norm(in_host_memory(), max_norm, norm_type));
        return clipping().clip_norm(on_devices(), max_norm, norm_type);
    }

    void clip_value(double limit) {
        if (!steps_.lanes()) return dptk::clip_grad_value(in_host_memory(), limit);
        clipping().clip_value(on_devices(), limit);
    }

    [[nodiscard]] bool unscale(double scale) {
        check_not_captured("unscale()");
        bool finite = true;
        if (steps_.lanes()) {
            break_job_unless_agreed(group_.channel().job(),
                                    [&] { finite = clipping().unscale(on_devices(), scale); });
        } else {
            finite = detail::unscale(in_host_memory(), scale);
        }
        return group_.all_reduce_value<int>(finite ? 0 : 1, ReduceOp::max) == 0;
    }

  private:
    /// A late gradient that no rank has used is not there.
    [[nodiscard]] bool has(std::size_t i) const {
        return buckets_.has(i) && (parameters_[i].gradient != nullptr || !parameters_[i].late_gradient);
    }

    [[nodiscard]] std::vector<ParameterRef> in_host_memory() const {
        std::vector<ParameterRef> in_buckets;
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            if (has(i)) in_buckets.push_back(parameters_[i]);
        return in_buckets;
    }

    [[nodiscard]] std::vector<Buffer> on_devices() const {
        std::vector<Buffer> buffers;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const ParameterRef& parameter = parameters_[i];
            if (has(i))
                buffers.push_back({parameter.gradient, parameter.count, parameter.dtype, parameter.device});
        }
        return buffers;
    }

    [[nodiscard]] DeviceClipping& clipping() {
        if (!clipping_) {
            check_not_captured("clipping for the first time");
            clipping_.emplace(*steps_.lanes());
        }
        return *clipping_;
    }

    void check_not_captured(std::string_view what) const {
        if (!steps_.is_captured()) return;
        throw ArgumentError(
            text("rank ", group_.rank(), ": ", what, " in a step that is captured into a CUDA graph"));
    }

    ProcessGroup& group_;
    const ModelParameters& parameters_;
    const BucketSet& buckets_;
    const GradientSteps& steps_;
    std::optional<DeviceClipping> clipping_;
};

}  // namespace dptk::detail
