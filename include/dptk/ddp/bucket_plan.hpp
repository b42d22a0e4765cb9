/// Bucket assignment: which gradients are sent together. plan_buckets is a pure function from parameter
/// sizes and bucket caps to buckets. It follows PyTorch's compute_bucket_assignment_by_size: small
/// gradients share a bucket, since sending each alone would be slow. The order of the parameters is decided
/// by ddp/detail/bucket_order.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The properties of a parameter that plan_buckets needs.
struct PlannedParameter {
    std::size_t count = 0;     ///< Number of elements.
    DType dtype = DType::f32;  ///< Element type of the gradient.
    Device device = {};        ///< The memory in which the gradient lies.
};

/// Gradients that are sent together, in one collective.
struct Bucket {
    DType dtype = DType::f32;  ///< Element type of all gradients in the bucket.
    Device device = {};        ///< The memory in which all its gradients lie.
    /// Indices into the list of parameters that was given to plan_buckets.
    std::vector<std::size_t> parameters;
};

/// Buckets in the order in which they are sent.
using BucketPlan = std::vector<Bucket>;

/// Packs `parameters` into buckets, in the given order, so that each bucket has one dtype and one device. A
/// bucket is complete as soon as its size reaches its cap; parameters are never split. For each dtype and
/// device, the first bucket has the cap caps[0], in bytes, the second caps[1], and so on; the last cap
/// applies to all further buckets. Buckets are sorted by their first parameter. Throws ArgumentError if
/// `caps` is empty.
[[nodiscard]] BucketPlan plan_buckets(std::span<const PlannedParameter> parameters,
                                      std::span<const std::size_t> caps);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/bucket_plan.ipp"
#endif
