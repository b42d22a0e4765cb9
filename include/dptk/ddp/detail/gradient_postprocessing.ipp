#pragma once

#include "dptk/ddp/detail/gradient_postprocessing.hpp"

#include <exception>
#include <string>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GradientNorm GradientPostprocessing::clip_norm(double max_norm, double norm_type) {
    check_norm_type(norm_type);
    parameters_.read_all_addresses();
    if (!steps_.lanes()) return GradientNorm(detail::clip_norm(averages(), max_norm, norm_type));
    return clipping().clip_norm(averages(), max_norm, norm_type);
}

DPTK_INLINE void GradientPostprocessing::clip_value(double limit) {
    parameters_.read_all_addresses();
    if (!steps_.lanes()) return detail::clip_value(averages(), limit);
    clipping().clip_value(averages(), limit);
}

DPTK_INLINE bool GradientPostprocessing::unscale(double scale) {
    check_not_captured("unscale()");
    enum Outcome : int { finite, not_finite, problem };
    std::string found;
    try {
        parameters_.read_all_addresses();
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        found = error.what();
    }
    const Outcome outcome = !found.empty() ? problem : unscale_own(scale) ? finite : not_finite;
    const int worst = group_.all_reduce_value<int>(outcome, ReduceOp::max);
    if (worst == problem) {
        const auto [problems, context] = gather_problems(group_, found);
        throw_agreed(group_, ArgumentError("unscale: " + problems, context));
    }
    return worst == finite;
}

DPTK_INLINE bool GradientPostprocessing::unscale_own(double scale) {
    if (!steps_.lanes()) return detail::unscale(averages(), scale);
    bool finite = true;
    group_.engine().control()->fail_job_on_error([&] { finite = clipping().unscale(averages(), scale); });
    return finite;
}

DPTK_INLINE bool GradientPostprocessing::has(std::size_t i) const {
    return buckets_.has(i) && (average(i).data != nullptr || !parameters_[i].lazy_gradient);
}

DPTK_INLINE Buffer GradientPostprocessing::average(std::size_t i) const {
    return buckets_.average(i, parameters_.tied(), parameters_[i]);
}

DPTK_INLINE std::span<const Buffer> GradientPostprocessing::averages() {
    averages_.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (!has(i)) continue;
        if (!steps_.lanes()) require_host_memory({&parameters_[i], 1}, "clipping and scaling");
        averages_.push_back(average(i));
    }
    return averages_;
}

DPTK_INLINE DeviceClipping& GradientPostprocessing::clipping() {
    if (!clipping_) {
        check_not_captured("the first clip_grad_norm() or clip_grad_value()");
        clipping_.emplace(*steps_.lanes());
    }
    return *clipping_;
}

DPTK_INLINE void GradientPostprocessing::check_not_captured(std::string_view what) const {
    if (!steps_.is_captured()) return;
    throw ArgumentError(text("rank ", group_.rank(), ": ", what, " cannot be captured into a CUDA graph"));
}

}  // namespace DPTK_NAMESPACE::detail
