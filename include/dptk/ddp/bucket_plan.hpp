/// Which parameters travel together. plan_buckets is a pure function from sizes and caps to buckets, with
/// PyTorch's rule (compute_bucket_assignment_by_size): small gradients are cheap to compute but dear to send
/// one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"

namespace dptk {

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
[[nodiscard]] inline BucketPlan plan_buckets(std::span<const PlannedParameter> parameters,
                                             std::span<const std::size_t> caps) {
    if (caps.empty()) throw ArgumentError("plan_buckets needs at least one cap");

    struct Filling {
        Bucket bucket;
        std::size_t bytes = 0;
        std::size_t closed = 0;  // buckets of this dtype and device that are complete
    };
    std::vector<Filling> filling;
    BucketPlan plan;

    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const PlannedParameter& parameter = parameters[i];
        auto place = std::ranges::find_if(filling, [&](const Filling& other) {
            return other.bucket.dtype == parameter.dtype && other.bucket.device == parameter.device;
        });
        if (place == filling.end()) {
            place = filling.insert(filling.end(), Filling{{parameter.dtype, parameter.device, {}}});
        }
        place->bucket.parameters.push_back(i);
        place->bytes += parameter.count * dtype_size(parameter.dtype);
        if (place->bytes >= caps[std::min(place->closed, caps.size() - 1)]) {
            plan.push_back(place->bucket);
            place->bucket.parameters.clear();
            place->bytes = 0;
            ++place->closed;
        }
    }
    for (Filling& rest : filling) {
        if (!rest.bucket.parameters.empty()) plan.push_back(std::move(rest.bucket));
    }
    std::ranges::sort(plan, {}, [](const Bucket& bucket) { return bucket.parameters.front(); });
    return plan;
}

}  // namespace dptk
