#pragma once

#include "dptk/ddp/detail/host_steps.hpp"

#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE HostSteps::HostSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
                                 BucketSet::Outcome outcome, bool is_own, bool may_send_early)
    : GradientSteps(group, parameters, buckets),
      outcome_(outcome),
      may_send_early_(may_send_early),
      traffic_(group, is_own, outcome) {}

DPTK_INLINE void HostSteps::set_hook(std::shared_ptr<CommHook> hook) {
    if (hook && !buckets_.devices().empty())
        throw_agreed(group_,
                     ArgumentError("hooks require all gradients in host memory, or all in device memory with "
                                   "dptk's CUDA kernels"));
    traffic_.set_hook(std::move(hook));
}

DPTK_INLINE void HostSteps::accumulate(std::size_t samples) {
    sums_.add(parameters_.refs(), samples,
              [&](std::size_t i) { return buckets_.has(i) && parameters_[i].gradient != nullptr; });
    note_accumulated(samples);
}

DPTK_INLINE void HostSteps::begin(const LocalStep& own) {
    header_.start(group_, header(own));
}

DPTK_INLINE bool HostSteps::may_proceed(LocalStep& own) {
    if (!header_.has_started()) header_.run(group_, header(own));
    header_.wait();
    if (own.is_shadow && !header_.any_counts_samples()) own.samples.reset();
    const bool is_mixed = header_.only_some_count_samples();
    if (is_mixed) {
        if (own.samples && has_accumulated()) {
            own.note(text("has accumulated ", accumulated_samples(), " samples"));
        } else {
            own.note_count();
        }
    }
    return !header_.has_any_problem() && !is_mixed;
}

DPTK_INLINE void HostSteps::send(const ModelBuffers& buffers, int root, const LocalStep&) {
    buffers.broadcast(group_, root);
}

DPTK_INLINE bool HostSteps::finish(LocalStep& own, const UnusedParameters& unused, StepClock& clock) {
    const bool is_carried = traffic_.carries_status(buckets_);
    bool failed = !is_carried && any_problem(own);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const BucketTraffic::Transfer transfer = traffic_.wait(b);
        if (outcome_ != BucketSet::Outcome::unreduced)
            clock.record_transfer(b, buckets_[b].gradients().bytes(), transfer);
        abort_job_on_error([&] { copy_out(b, own, unused); });
        const bool has_status = b + 1 == buckets_.size() && is_carried;
        failed = failed || (has_status && buckets_[b].status());
    }
    abort_job_on_error([&] {
        for (const int device : buckets_.devices()) device_calls().synchronize(device);
    });
    if (!failed) discard_sums();
    return !failed;
}

DPTK_INLINE void HostSteps::reset() {
    GradientSteps::reset();
    header_.reset();
    traffic_.reset(buckets_.size());
}

DPTK_INLINE void HostSteps::discard_sums() {
    GradientSteps::discard_sums();
    sums_.clear();
}

DPTK_INLINE void HostSteps::launch_bucket(std::size_t b, const LocalStep& own,
                                          const std::vector<bool>& takes_part) {
    abort_job_on_error([&] { copy_in(b, own, takes_part); });
    traffic_.launch(buckets_, b, parameters_.refs(),
                    {.op = reduction(own),
                     .weight = rank_weight(own),
                     .step = own.number,
                     .has_problem = !own.problem.empty(),
                     .may_block = !overlaps() || (buckets_.size() == 1 && !may_send_early_)});
}

DPTK_INLINE void HostSteps::copy_in(std::size_t b, const LocalStep& own,
                                    const std::vector<bool>& takes_part) {
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

DPTK_INLINE void HostSteps::copy_out(std::size_t b, const LocalStep& own, const UnusedParameters& unused) {
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

DPTK_INLINE StepHeader::Own HostSteps::header(const LocalStep& own) const {
    return {own.samples, accumulated_samples(), !own.problem.empty(), own.is_shadow};
}

DPTK_INLINE double HostSteps::rank_weight(const LocalStep& own) const {
    if (!own.samples) return own.is_shadow ? 0 : 1.0 / averaging_ranks();
    return header_.weight() + static_cast<double>(accumulated_samples()) * header_.sample_weight();
}

DPTK_INLINE double HostSteps::copy_weight(const LocalStep& own) const {
    const bool weighs_ranks = traffic_.has_hook() || round_.averages_over_present;
    return weighs_ranks && !own.samples ? 1.0 / averaging_ranks() : header_.weight();
}

}  // namespace DPTK_NAMESPACE::detail
