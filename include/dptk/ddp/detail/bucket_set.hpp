/// All buckets of a model, and which gradient lies in which.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/gradient_bucket.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

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
              Outcome outcome, bool on_device = false);

    /// Whether the last one has the status.
    [[nodiscard]] bool carries_status() const noexcept { return carries_status_; }

    /// On which the gradients lie that are not in host memory.
    [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }

    [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
    [[nodiscard]] GradientBucket& operator[](std::size_t b) noexcept { return buckets_[b]; }
    [[nodiscard]] const GradientBucket& operator[](std::size_t b) const noexcept { return buckets_[b]; }

    [[nodiscard]] const Place& place(std::size_t parameter) const noexcept { return places_[parameter]; }
    [[nodiscard]] bool has(std::size_t parameter) const noexcept;

    /// The memory of a gradient that is in a bucket.
    [[nodiscard]] Buffer gradient(std::size_t parameter, std::size_t count) const noexcept;

    /// Throws ArgumentError where a gradient is not in its bucket, if it is known where it is.
    void check_views(const std::vector<ParameterRef>& parameters) const;

    [[nodiscard]] bool is_view(std::size_t i, const ParameterRef& parameter) const;

    [[nodiscard]] static std::string view_problem(std::size_t i, const ParameterRef& parameter);

    /// Bytes of gradients in each bucket, without what aligns them.
    [[nodiscard]] std::vector<std::size_t> gradient_bytes(const std::vector<ParameterRef>& parameters) const;

    /// Throws ArgumentError where a cap is no size.
    static void check_caps(const DistributedDataParallelOptions& options);

  private:
    /// In bytes: of the first bucket to leave, and of all others.
    [[nodiscard]] static std::vector<std::size_t> caps(const DistributedDataParallelOptions& options);

    std::vector<Place> places_;
    std::vector<int> devices_;
    bool carries_status_ = false;
    std::vector<GradientBucket> buckets_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/bucket_set.ipp"
#endif
