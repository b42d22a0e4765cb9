/// agree_on_layouts(), for ranks on machines with different processors.
#pragma once

#include <cstdint>
#include <string>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/nn/network.hpp"

namespace DPTK_NAMESPACE::nn {

/// Makes the parameters of a network row-major on all ranks if their layouts differ between ranks, as with
/// oneDNN on different processors: data-parallel training needs parameters of equal layouts. Each rank then
/// converts weights to the layout of its processor in each step. Call it before DistributedDataParallel is
/// constructed; Trainer does so. Returns whether the layouts were equal. Collective, blocks.
template <NetworkBackend Backend>
bool agree_on_layouts(ProcessGroup& group, Network<Backend>& net) {
    std::string layouts;
    net.for_each_parameter(
        [&](const ParameterRef& parameter) { layouts += dptk::detail::text(parameter.layout, ' '); });
    // The largest value equals the smallest one, which is the complement of the largest complement.
    const auto hash = static_cast<std::int64_t>(dptk::detail::fnv1a(layouts) >> 1);
    const std::int64_t largest = group.all_reduce_value(hash, ReduceOp::max);
    const bool is_equal = group.all_reduce_value(-hash, ReduceOp::max) == -largest;
    if (!is_equal) net.use_row_major_parameters();
    return is_equal;
}

}  // namespace DPTK_NAMESPACE::nn
