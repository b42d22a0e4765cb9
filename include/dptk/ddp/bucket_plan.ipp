#pragma once

#include "dptk/ddp/bucket_plan.hpp"

#include <algorithm>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE BucketPlan plan_buckets(std::span<const PlannedParameter> parameters,
                                    std::span<const std::size_t> caps) {
    if (caps.empty()) throw ArgumentError("plan_buckets: expected at least one cap, got none");

    struct Filling {
        Bucket bucket;
        std::size_t bytes = 0;
        std::size_t closed = 0;  // buckets of this dtype and device that are complete
    };
    std::vector<Filling> filling;
    BucketPlan plan;

    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const PlannedParameter& parameter = parameters[i];
        auto place = detail::find_if(filling, [&](const Filling& other) {
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
    detail::sort(
        plan, [](const Bucket& a, const Bucket& b) { return a.parameters.front() < b.parameters.front(); });
    return plan;
}

}  // namespace DPTK_NAMESPACE
