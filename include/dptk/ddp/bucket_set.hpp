/// All buckets of a model, and which gradient lies in which.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dptk/ddp/bucket_plan.hpp"
#include "dptk/ddp/gradient_bucket.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

class BucketSet {
  public:
    /// Where a gradient lies.
    struct Place {
        static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

        std::size_t bucket = nowhere;
        std::size_t position = 0;
    };

    /// What comes of a bucket: the average on all ranks, an equal part of it on each, or nothing: each rank's
    /// gradients stay there, and somebody else makes averages of them, in parts.
    enum class Outcome { everywhere, in_parts, unreduced };

    BucketSet() = default;

    /// Buckets for the parameters whose indices `order` has, which leave in this order; all others are in no
    /// bucket. Where the outcome is everywhere, and all are in host memory or `on_device` is set, the last
    /// one has an element for the ranks' status. Collective.
    BucketSet(ProcessGroup& group, const std::vector<ParameterRef>& parameters,
              std::span<const std::size_t> order, const DistributedDataParallelOptions& options,
              Outcome outcome, bool on_device = false)
        : places_(parameters.size()) {
        const bool in_parts = outcome != Outcome::everywhere;
        std::vector<PlannedParameter> planned;
        for (const std::size_t i : order) {
            const ParameterRef& parameter = parameters[i];
            planned.push_back({parameter.count, parameter.dtype, parameter.device});
            const bool is_new = std::ranges::find(devices_, parameter.device.index) == devices_.end();
            if (parameter.device.type != DeviceType::cpu && is_new)
                devices_.push_back(parameter.device.index);
        }
        carries_status_ = !in_parts && (devices_.empty() || on_device) && !order.empty();
        BucketPlan plan = plan_buckets(planned, caps(options));
        for (std::size_t b = 0; b < plan.size(); ++b) {
            for (std::size_t position = 0; position < plan[b].parameters.size(); ++position) {
                std::size_t& index = plan[b].parameters[position];
                index = order[index];
                places_[index] = {b, position};
            }
            using Status = GradientBucket::Status;
            const bool has_status = b + 1 == plan.size() && carries_status_;
            buckets_.emplace_back(group, plan[b], parameters,
                                  has_status ? Status::last_element : Status::none,
                                  in_parts ? static_cast<std::size_t>(group.size()) : 1);
        }
    }

    /// Whether the last one has the status.
    [[nodiscard]] bool carries_status() const noexcept { return carries_status_; }

    /// On which the gradients lie that are not in host memory.
    [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }

    [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
    [[nodiscard]] GradientBucket& operator[](std::size_t b) noexcept { return buckets_[b]; }
    [[nodiscard]] const GradientBucket& operator[](std::size_t b) const noexcept { return buckets_[b]; }

    [[nodiscard]] const Place& place(std::size_t parameter) const noexcept { return places_[parameter]; }
    [[nodiscard]] bool has(std::size_t parameter) const noexcept {
        return places_[parameter].bucket != Place::nowhere;
    }

    /// The memory of a gradient that is in a bucket.
    [[nodiscard]] Buffer gradient(std::size_t parameter, std::size_t count) const noexcept {
        const auto [bucket, position] = places_[parameter];
        return buckets_[bucket].gradient(position, count);
    }

    /// Throws ArgumentError where a gradient is not in its bucket, if it is known where it is.
    void check_views(const std::vector<ParameterRef>& parameters) const {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            if (has(i) && parameters[i].gradient != nullptr && !is_view(i, parameters[i]))
                throw ArgumentError(view_problem(i, parameters[i]));
        }
    }

    [[nodiscard]] bool is_view(std::size_t i, const ParameterRef& parameter) const {
        return parameter.count == 0 || parameter.gradient == gradient(i, parameter.count).data;
    }

    [[nodiscard]] static std::string view_problem(std::size_t i, const ParameterRef& parameter) {
        return text("gradient_as_bucket_view: gradient ", parameter.name, " is not where gradient_memory(", i,
                    ") is");
    }

    /// Bytes of gradients in each bucket, without what aligns them.
    [[nodiscard]] std::vector<std::size_t> gradient_bytes(const std::vector<ParameterRef>& parameters) const {
        std::vector<std::size_t> bytes(size());
        for (std::size_t b = 0; b < size(); ++b) {
            for (const std::size_t i : buckets_[b].indices())
                bytes[b] += parameters[i].count * dtype_size(parameters[i].dtype);
        }
        return bytes;
    }

    /// Throws ArgumentError where a cap is no size.
    static void check_caps(const DistributedDataParallelOptions& options) {
        for (const std::optional<double>& cap : {options.bucket_cap_mb, options.first_bucket_mb}) {
            if (cap && !(*cap > 0 && std::isfinite(*cap)))
                throw ArgumentError(text("a bucket cap of ", *cap, " MiB; it must be positive"));
        }
    }

  private:
    /// In bytes: of the first bucket to leave, and of all others.
    [[nodiscard]] static std::vector<std::size_t> caps(const DistributedDataParallelOptions& options) {
        constexpr double mib = 1024.0 * 1024.0;
        const double cap = options.bucket_cap_mb.value_or(25);
        const double first = options.first_bucket_mb.value_or(options.bucket_cap_mb ? cap : 1);
        const auto bytes = [](double size) { return static_cast<std::size_t>(std::min(size * mib, 1e18)); };
        return {bytes(first), bytes(cap)};
    }

    std::vector<Place> places_;
    std::vector<int> devices_;
    bool carries_status_ = false;
    std::vector<GradientBucket> buckets_;
};

}  // namespace dptk::detail
