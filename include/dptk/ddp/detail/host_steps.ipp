#pragma once

#include "dptk/ddp/detail/host_steps.hpp"

#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE HostSteps::HostSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
                                 BucketSet::Outcome outcome, bool is_own, bool may_leave_early)
    : GradientSteps(group, parameters, buckets),
      outcome_(outcome),
      may_leave_early_(may_leave_early),
      traffic_(group, is_own, outcome) {}

DPTK_INLINE void HostSteps::set_hook(std::shared_ptr<CommHook> hook) {
    if (hook && !buckets_.devices().empty())
        throw_agreed(group_,
                     ArgumentError("hooks are for gradients that are all in host memory, or all in device "
                                   "memory, in a program with dptk's kernels"));
    traffic_.set_hook(std::move(hook));
}

DPTK_INLINE void HostSteps::accumulate(std::size_t samples) {
    sums_.add(parameters_.refs(), samples,
              [&](std::size_t i) { return buckets_.has(i) && parameters_[i].gradient != nullptr; });
    note_accumulated(samples);
}

DPTK_INLINE void HostSteps::begin(const OwnStep& own) {
    header_.start(group_, header(own));
}

DPTK_INLINE bool HostSteps::may_proceed(OwnStep& own) {
    if (!header_.has_started()) header_.run(group_, header(own));
    header_.wait();
    if (own.is_shadow && !header_.does_any_count()) own.samples.reset();
    const bool some_count = header_.do_some_count();
    if (some_count) {
        if (own.samples && has_accumulated()) {
            own.note(text("has accumulated ", accumulated_samples(), " samples"));
        } else {
            own.note_count();
        }
    }
    return !header_.is_any_in_trouble() && !some_count;
}

DPTK_INLINE void HostSteps::send(const ModelBuffers& buffers, int root, const OwnStep&) {
    buffers.broadcast(group_, root);
}

DPTK_INLINE bool HostSteps::finish(OwnStep& own, const UnusedParameters& unused, StepClock& clock) {
    const bool is_carried = traffic_.carries_status(buckets_);
    bool failed = !is_carried && any_problem(own);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const BucketTraffic::Trip trip = traffic_.wait(b);
        if (outcome_ != BucketSet::Outcome::unreduced)
            clock.note_trip(b, buckets_[b].gradients().bytes(), trip);
        abort_job_on_error([&] { copy_out(b, own, unused); });
        const bool has_status = b + 1 == buckets_.size() && is_carried;
        failed = failed || (has_status && buckets_[b].status());
    }
    abort_job_on_error([&] {
        for (const int device : buckets_.devices()) device_calls().synchronize(device);
    });
    if (!failed) forget_sums();
    return !failed;
}

DPTK_INLINE void HostSteps::reset() {
    GradientSteps::reset();
    header_.reset();
    traffic_.reset(buckets_.size());
}

DPTK_INLINE void HostSteps::forget_sums() {
    GradientSteps::forget_sums();
    sums_.clear();
}

DPTK_INLINE void HostSteps::launch_bucket(std::size_t b, const OwnStep& own,
                                          const std::vector<bool>& takes_part) {
    abort_job_on_error([&] { copy_in(b, own, takes_part); });
    traffic_.launch(buckets_, b, parameters_.refs(),
                    {.op = reduction(own),
                     .weight = rank_weight(own),
                     .step = own.number,
                     .has_problem = !own.problem.empty(),
                     .may_block = !overlaps() || (buckets_.size() == 1 && !may_leave_early_)});
}

DPTK_INLINE void HostSteps::copy_in(std::size_t b, const OwnStep& own, const std::vector<bool>& takes_part) {
    const trace::Span span("copy in");
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters_[indices[position]];
        const double weight = takes_part[position] ? copy_weight(own) : 0;
        const Buffer place = buckets_[b].gradient(position, parameter.count);
        if (has_accumulated()) {
            sums_.blend(place, indices[position], header_.sample_weight(), parameter.gradient, weight);
        } else {
            copy_scaled(place, parameter.gradient, weight);
        }
    }
}

DPTK_INLINE void HostSteps::copy_out(std::size_t b, const OwnStep& own, const UnusedParameters& unused) {
    if (!own.has_addresses || own.is_shadow || outcome_ != BucketSet::Outcome::everywhere) return;
    const trace::Span span("copy out");
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters_[indices[position]];
        if (unused[indices[position]]) continue;
        const Buffer average = buckets_[b].gradient(position, parameter.count);
        copy_gradient(average.at(parameter.gradient), average.data);
    }
}

DPTK_INLINE StepHeader::Own HostSteps::header(const OwnStep& own) const {
    return {own.samples, accumulated_samples(), !own.problem.empty(), own.is_shadow};
}

DPTK_INLINE double HostSteps::rank_weight(const OwnStep& own) const {
    if (!own.samples) return own.is_shadow ? 0 : 1.0 / ranks_that_count();
    return header_.weight() + static_cast<double>(accumulated_samples()) * header_.sample_weight();
}

DPTK_INLINE double HostSteps::copy_weight(const OwnStep& own) const {
    const bool weighs_ranks = traffic_.has_hook() || round_.averages_over_present;
    return weighs_ranks && !own.samples ? 1.0 / ranks_that_count() : header_.weight();
}

}  // namespace DPTK_NAMESPACE::detail
