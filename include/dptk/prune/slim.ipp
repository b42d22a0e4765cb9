#pragma once

#include "dptk/prune/slim.hpp"

#include <concepts>
#include <cstddef>
#include <string>
#include <variant>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

namespace detail {

template <std::floating_point T>
void add_signs(const ParameterRef& parameter, double factor) {
    const std::span<const T> values = parameter.values<T>();
    const std::span<T> gradients = parameter.gradients<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] > 0) gradients[i] += static_cast<T>(factor);
        if (values[i] < 0) gradients[i] -= static_cast<T>(factor);
    }
}

}  // namespace detail

DPTK_INLINE void add_slim_gradients(const Graph& graph, std::span<const ParameterRef> parameters,
                                    double factor) {
    for (const GraphNode& node : graph.nodes()) {
        if (!std::holds_alternative<BatchNorm2d>(node.operation)) continue;
        const auto found = dptk::detail::find(parameters, node.name + ".weight", &ParameterRef::name);
        if (found == parameters.end())
            throw ArgumentError(dptk::detail::text("add_slim_gradients: expected the parameter \"", node.name,
                                                   ".weight\", found none of this name"));
        if (found->dtype == DType::f64) {
            detail::add_signs<double>(*found, factor);
        } else {
            detail::add_signs<float>(*found, factor);
        }
    }
}

}  // namespace DPTK_NAMESPACE::nn
