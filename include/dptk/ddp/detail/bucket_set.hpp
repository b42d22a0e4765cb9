/// The buckets of a model, and in which bucket and at which position each gradient lies.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/detail/gradient_bucket.hpp"
#include "dptk/ddp/detail/tied_parameters.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

class BucketSet {
  public:
    /// The bucket of a gradient, and the gradient's position among those in the bucket.
    struct Place {
        static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

        std::size_t bucket = nowhere;
        std::size_t position = 0;
    };

    /// What a step leaves in the buckets: the average on all ranks; an equal part of the average on each
    /// rank; or each rank's own gradients, which the caller then averages in parts.
    enum class Outcome { everywhere, in_parts, unreduced };

    BucketSet() = default;

    /// Makes buckets for the parameters whose indices are in `order`, to be sent in this order; other
    /// parameters get no bucket. The last bucket has an additional element for the ranks' status if the
    /// outcome is `everywhere`, and either all gradients are in host memory or `on_device` is set.
    /// Collective.
    BucketSet(ProcessGroup& group, const std::vector<ParameterRef>& parameters,
              std::span<const std::size_t> order, const DistributedDataParallelOptions& options,
              Outcome outcome, bool on_device = false);

    /// Returns whether the last bucket has a status element.
    [[nodiscard]] bool carries_status() const noexcept { return carries_status_; }

    /// Returns the devices of all gradients that are in device memory.
    [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }

    [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
    [[nodiscard]] GradientBucket& operator[](std::size_t b) noexcept { return buckets_[b]; }
    [[nodiscard]] const GradientBucket& operator[](std::size_t b) const noexcept { return buckets_[b]; }

    [[nodiscard]] const Place& place(std::size_t parameter) const noexcept { return places_[parameter]; }
    [[nodiscard]] bool has(std::size_t parameter) const noexcept;

    /// Returns the memory of a gradient that is in a bucket.
    [[nodiscard]] Buffer gradient(std::size_t parameter, std::size_t count) const noexcept;

    /// Returns where a step leaves the average of gradient `i`: in the program's gradient, or in the bucket
    /// if that has another element type.
    [[nodiscard]] Buffer average(std::size_t i, const TiedParameters& tied,
                                 const ParameterRef& parameter) const noexcept;

    /// Throws ArgumentError if a gradient whose address is known does not lie in its bucket.
    void check_views(const std::vector<ParameterRef>& parameters) const;

    [[nodiscard]] bool is_view(std::size_t i, const ParameterRef& parameter) const;

    [[nodiscard]] static std::string view_problem(std::size_t i, const ParameterRef& parameter);

    /// Returns the bytes of gradients in each bucket, without padding.
    [[nodiscard]] std::vector<std::size_t> gradient_bytes(const std::vector<ParameterRef>& parameters) const;

    /// Throws ArgumentError if a bucket cap is not a positive number.
    static void check_caps(const DistributedDataParallelOptions& options);

  private:
    /// Returns the caps, in bytes, of the first bucket and of all others.
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
