#pragma once

#include "dptk/ddp/detail/host_steps.hpp"

#include <cstring>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE HostSteps::HostSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
                                 const DistributedDataParallelOptions& options, BucketSet::Outcome outcome,
                                 bool is_own, bool may_send_early)
    : GradientSteps(group, parameters, buckets, options),
      outcome_(outcome),
      may_send_early_(may_send_early),
      reduces_in_f32_(options.reduce_in_f32),
      traffic_(group, is_own, outcome) {}

DPTK_INLINE void HostSteps::set_hook(std::shared_ptr<CommHook> hook) {
    if (hook && !buckets_.devices().empty())
        throw_agreed(group_,
                     ArgumentError("hooks require all gradients in host memory, or all in device memory with "
                                   "dptk's CUDA kernels"));
    traffic_.set_hook(std::move(hook));
}

DPTK_INLINE void HostSteps::accumulate(std::size_t samples) {
    sums_.add(parameters_.refs(), micro_batch_weight(samples),
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
    if (header_.has_other_hash()) own.note_drift();  // reported to the other ranks with the last bucket
    return !header_.has_any_problem() && !is_mixed;
}

DPTK_INLINE void HostSteps::send(const ModelBuffers& buffers, int root, const LocalStep&) {
    has_buffers_ = true;
    buffers.broadcast(group_, root);
}

DPTK_INLINE bool HostSteps::finish(LocalStep& own, const UnusedParameters& unused, StepClock& clock) {
    const bool is_carried = traffic_.carries_status(buckets_);
    bool failed = !is_carried && !header_had_all_problems() && any_problem(own);
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

DPTK_INLINE bool HostSteps::header_had_all_problems() const {
    return !may_send_early_ && !overlaps() && !has_buffers_ && !header_.compares_hashes();
}

DPTK_INLINE void HostSteps::reset() {
    GradientSteps::reset();
    header_.reset();
    traffic_.reset(buckets_.size());
    for (std::vector<std::byte>& kept : kept_) kept.clear();
}

DPTK_INLINE void HostSteps::discard_sums() {
    GradientSteps::discard_sums();
    sums_.clear();
}

DPTK_INLINE ReduceOp HostSteps::reduction(const LocalStep& own) const noexcept {
    return needs_no_weights(own) ? ReduceOp::avg : GradientSteps::reduction(own);
}

DPTK_INLINE bool HostSteps::needs_no_weights(const LocalStep& own) const noexcept {
    return own.samples && !sums_samples() && !traffic_.has_hook() && header_.counts_are_equal();
}

DPTK_INLINE void HostSteps::launch_bucket(std::size_t b, const LocalStep& own,
                                          const std::vector<bool>& takes_part) {
    abort_job_on_error([&] { copy_in(b, own, takes_part); });
    traffic_.launch(buckets_, b, parameters_.refs(),
                    {.op = reduction(own),
                     .weight = rank_weight(own),
                     .sum_weight = copy_weight(own),
                     .step = own.number,
                     .has_problem = !own.problem.empty(),
                     .may_block = !overlaps() || (buckets_.size() == 1 && !may_send_early_)});
}

DPTK_INLINE void HostSteps::copy_in(std::size_t b, const LocalStep& own,
                                    const std::vector<bool>& takes_part) {
    const trace::Span span("copy in");
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    const bool needs_no_copies = are_averages(own);
    is_average_.resize(parameters_.size());
    for (std::size_t position = 0; position < indices.size(); ++position) {
        is_average_[indices[position]] = needs_no_copies && takes_part[position];
        if (is_average_[indices[position]]) continue;
        const ParameterRef& parameter = parameters_[indices[position]];
        const double weight = takes_part[position] ? copy_weight(own) : 0;
        const Buffer place = buckets_[b].gradient(position, parameter.count);
        const bool is_in_place = place.data == parameter.gradient && place.count != 0;
        if (!takes_part[position] && is_in_place && may_keep_gradients(own)) keep(indices[position], place);
        if (has_accumulated()) {
            sums_.blend(place, indices[position], sum_weight(), parameter.gradient_buffer(), weight);
        } else {
            copy_scaled(place, parameter.gradient_buffer(), weight);
        }
    }
}

DPTK_INLINE bool HostSteps::are_averages(const LocalStep& own) const {
    return group_.size() == 1 && outcome_ == BucketSet::Outcome::everywhere && !reduces_in_f32_ &&
           !traffic_.has_hook() && !has_accumulated() && !may_keep_gradients(own) &&
           own.samples != std::size_t{0};
}

DPTK_INLINE void HostSteps::copy_out(std::size_t b, const LocalStep& own, const UnusedParameters& unused) {
    if (!own.has_addresses || outcome_ != BucketSet::Outcome::everywhere) return;
    const trace::Span span("copy out");
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        if (is_average_[indices[position]]) continue;
        const ParameterRef& parameter = parameters_[indices[position]];
        const Buffer average = buckets_[b].gradient(position, parameter.count);
        if (average.dtype != parameter.gradient_buffer().dtype) continue;  // the program reads the bucket
        if (own.is_shadow || unused[indices[position]]) {
            restore(indices[position], average);
            continue;
        }
        copy_gradient(average.at(parameter.gradient), average.data);
    }
}

DPTK_INLINE void HostSteps::keep(std::size_t i, const Buffer& gradient) {
    kept_.resize(parameters_.size());
    kept_[i].resize(gradient.bytes());
    if (gradient.on_device()) {
        device_calls().copy(kept_[i].data(), gradient.data, gradient.bytes(), gradient.device.index);
    } else {
        std::memcpy(kept_[i].data(), gradient.data, gradient.bytes());
    }
}

DPTK_INLINE void HostSteps::restore(std::size_t i, const Buffer& gradient) {
    if (i >= kept_.size() || kept_[i].empty()) return;
    copy_gradient(gradient, kept_[i].data());
    kept_[i].clear();
}

DPTK_INLINE StepHeader::Own HostSteps::header(const LocalStep& own) const {
    return {own.samples, accumulated_samples(), !own.problem.empty(), own.is_shadow, own.hash};
}

DPTK_INLINE double HostSteps::sum_weight() const {
    return sums_samples() ? 1 : header_.sample_weight();
}

DPTK_INLINE double HostSteps::rank_weight(const LocalStep& own) const {
    const bool has_samples = own.samples.value_or(1) + accumulated_samples() > 0;
    if (sums_samples()) return own.is_shadow || !has_samples ? 0 : 1.0 / averaging_ranks();
    if (!own.samples) return own.is_shadow ? 0 : 1.0 / averaging_ranks();
    return header_.weight() + static_cast<double>(accumulated_samples()) * header_.sample_weight();
}

DPTK_INLINE double HostSteps::copy_weight(const LocalStep& own) const {
    if (sums_samples()) return own.samples == std::size_t{0} ? 0 : 1;
    if (needs_no_weights(own)) return 1;
    const bool weighs_ranks = traffic_.has_hook() || round_.averages_over_present;
    return weighs_ranks && !own.samples ? 1.0 / averaging_ranks() : header_.weight();
}

}  // namespace DPTK_NAMESPACE::detail
