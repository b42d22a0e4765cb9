#pragma once

#include "dptk/ddp/detail/bucket_set.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/bucket_plan.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE BucketSet::BucketSet(ProcessGroup& group, const std::vector<ParameterRef>& parameters,
                                 std::span<const std::size_t> order,
                                 const DistributedDataParallelOptions& options, Outcome outcome,
                                 bool on_device)
    : places_(parameters.size()) {
    const bool in_parts = outcome != Outcome::everywhere;
    std::vector<PlannedParameter> planned;
    for (const std::size_t i : order) {
        const ParameterRef& parameter = parameters[i];
        planned.push_back({parameter.count, parameter.gradient_buffer().dtype, parameter.device});
        const bool is_new = !detail::contains(devices_, parameter.device.index);
        if (parameter.device.type != DeviceType::cpu && is_new) devices_.push_back(parameter.device.index);
    }
    carries_status_ = !in_parts && (devices_.empty() || on_device) && !order.empty();
    BucketPlan plan = plan_buckets(planned, caps(options));
    for (std::size_t b = 0; b < plan.size(); ++b) {
        if (options.reduce_in_f32) plan[b].dtype = accumulation_dtype(plan[b].dtype);
        for (std::size_t position = 0; position < plan[b].parameters.size(); ++position) {
            std::size_t& index = plan[b].parameters[position];
            index = order[index];
            places_[index] = {b, position};
        }
        using Status = GradientBucket::Status;
        const bool has_status = b + 1 == plan.size() && carries_status_;
        buckets_.emplace_back(group, plan[b], parameters, has_status ? Status::last_element : Status::none,
                              in_parts ? static_cast<std::size_t>(group.size()) : 1);
    }
}

DPTK_INLINE bool BucketSet::has(std::size_t parameter) const noexcept {
    return places_[parameter].bucket != Place::nowhere;
}

DPTK_INLINE Buffer BucketSet::gradient(std::size_t parameter, std::size_t count) const noexcept {
    const auto [bucket, position] = places_[parameter];
    return buckets_[bucket].gradient(position, count);
}

DPTK_INLINE Buffer BucketSet::average(std::size_t i, const TiedParameters& tied,
                                      const ParameterRef& parameter) const noexcept {
    const Buffer own = parameter.gradient_buffer();
    if (!has(tied.first(i))) return own;
    const Buffer in_bucket = gradient(tied.first(i), parameter.count);
    return in_bucket.dtype == own.dtype ? own : in_bucket;
}

DPTK_INLINE void BucketSet::check_views(const std::vector<ParameterRef>& parameters) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (has(i) && parameters[i].gradient != nullptr && !is_view(i, parameters[i]))
            throw ArgumentError(view_problem(i, parameters[i]), {.parameter = parameters[i].name});
    }
}

DPTK_INLINE bool BucketSet::is_view(std::size_t i, const ParameterRef& parameter) const {
    return parameter.count == 0 || parameter.gradient == gradient(i, parameter.count).data;
}

DPTK_INLINE std::string BucketSet::view_problem(std::size_t i, const ParameterRef& parameter) {
    return text("gradient_as_bucket_view: gradient ", parameter.name,
                " is not at the address that gradient_memory(", i, ") returns");
}

DPTK_INLINE std::vector<std::size_t> BucketSet::gradient_bytes(
    const std::vector<ParameterRef>& parameters) const {
    std::vector<std::size_t> bytes(size());
    for (std::size_t b = 0; b < size(); ++b) {
        for (const std::size_t i : buckets_[b].indices())
            bytes[b] += parameters[i].count * buckets_[b].gradients().element_size();
    }
    return bytes;
}

DPTK_INLINE void BucketSet::check_caps(const DistributedDataParallelOptions& options) {
    for (const std::optional<double>& cap : {options.bucket_cap_mb, options.first_bucket_mb}) {
        if (cap && !(*cap > 0 && std::isfinite(*cap)))
            throw ArgumentError(text("invalid bucket cap ", *cap, " MiB: it must be positive and finite"));
    }
}

DPTK_INLINE std::vector<std::size_t> BucketSet::caps(const DistributedDataParallelOptions& options) {
    constexpr double mib = 1024.0 * 1024.0;
    const double cap = options.bucket_cap_mb.value_or(25);
    const double first = options.first_bucket_mb.value_or(options.bucket_cap_mb ? cap : 1);
    const auto bytes = [](double size) { return static_cast<std::size_t>(std::min(size * mib, 1e18)); };
    return {bytes(first), bytes(cap)};
}

}  // namespace DPTK_NAMESPACE::detail
