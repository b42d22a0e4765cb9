#pragma once

#include "dptk/ddp/detail/gradient_steps.hpp"

#include <algorithm>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void LocalStep::note(std::string what, std::string_view its_parameter) {
    if (!has_mistake) {
        problem = std::move(what);
        parameter = its_parameter;
    }
    has_mistake = true;
}

DPTK_INLINE void LocalStep::note_count() {
    note(samples ? text("begins the step with a sample count of ", *samples)
                 : "begins the step without a sample count");
}

DPTK_INLINE void LocalStep::note_drift() {
    has_drifted = true;
    if (problem.empty()) problem = "its parameters differ from those of other ranks";
}

DPTK_INLINE void GradientSteps::launch(const LocalStep& own, const std::vector<bool>& takes_part) {
    launch_bucket(next_++, own, takes_part);
}

DPTK_INLINE void GradientSteps::discard_sums() {
    accumulated_samples_ = 0;
    has_accumulated_ = false;
}

DPTK_INLINE ReduceOp GradientSteps::reduction(const LocalStep& own) const noexcept {
    const bool is_weighted = own.samples || round_.averages_over_present;
    return sums_samples_ || is_weighted ? ReduceOp::sum : ReduceOp::avg;
}

DPTK_INLINE double GradientSteps::micro_batch_weight(std::size_t samples) const noexcept {
    return static_cast<double>(sums_samples_ ? std::min<std::size_t>(samples, 1) : samples);
}

DPTK_INLINE bool GradientSteps::overlaps() const {
    if (!buckets_.devices().empty()) return true;
    return group_.size() > 1 && !group_.engine().competes_with_compute();
}

DPTK_INLINE void GradientSteps::note_accumulated(std::size_t samples) noexcept {
    accumulated_samples_ += samples;
    has_accumulated_ = true;
}

DPTK_INLINE int GradientSteps::averaging_ranks() const {
    return round_.averages_over_present ? round_.present : group_.size();
}

DPTK_INLINE bool GradientSteps::any_problem(const LocalStep& own) {
    return group_.all_reduce_value<int>(own.problem.empty() ? 0 : 1, ReduceOp::max) != 0;
}

}  // namespace DPTK_NAMESPACE::detail
