/// Which parameters travel together. plan_buckets is a pure function from sizes and caps to buckets, with
/// PyTorch's rule (compute_bucket_assignment_by_size): small gradients are cheap to compute but dear to send
/// one by one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// What the plan must know of a parameter.
struct PlannedParameter {
    std::size_t count = 0;     ///< Its elements.
    DType dtype = DType::f32;  ///< Of its gradient.
    Device device = {};        ///< Where its gradient lies.
};

/// Gradients that travel together.
struct Bucket {
    DType dtype = DType::f32;  ///< Of all its gradients.
    Device device = {};        ///< Where all its gradients lie.
    /// Indices into the list that was planned.
    std::vector<std::size_t> parameters;
};

/// Buckets in the order in which they leave.
using BucketPlan = std::vector<Bucket>;

/// Fills buckets with `parameters` in the order given, one dtype and device each. A bucket closes when its
/// bytes reach its cap after a parameter was added, so that a parameter is never split. The first bucket of
/// each dtype and device is closed by caps[0] bytes, the second by caps[1], and so on; the last cap goes for
/// all that follow. Buckets come in the order of their first parameter. Throws ArgumentError where caps is
/// empty.
[[nodiscard]] BucketPlan plan_buckets(std::span<const PlannedParameter> parameters,
                                      std::span<const std::size_t> caps);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/bucket_plan.ipp"
#endif
