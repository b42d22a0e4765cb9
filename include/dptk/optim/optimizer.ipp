#pragma once

#include "dptk/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::vector<std::size_t> stepped_parameters(std::span<const ParameterRef> parameters) {
    std::vector<std::size_t> stepped;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].count != 0 && parameters[i].gradient != nullptr) stepped.push_back(i);
    }
    const auto value = [&](std::size_t i) { return static_cast<const void*>(parameters[i].value); };
    detail::stable_sort(stepped,
                        [&](std::size_t a, std::size_t b) { return std::less<>()(value(a), value(b)); });
    const auto repeats = [&](std::size_t a, std::size_t b) { return value(a) == value(b); };
    stepped.erase(std::unique(stepped.begin(), stepped.end(), repeats), stepped.end());
    detail::sort(stepped);
    return stepped;
}

DPTK_INLINE void convert_gradient(const ParameterRef& parameter, const Buffer& to) {
    require_host_memory({&parameter, 1}, "an optimizer");
    convert(to, parameter.gradient_buffer());
}

DPTK_INLINE void require_not_negative(std::string_view optimizer, std::string_view option, double value) {
    if (!(value >= 0) || !std::isfinite(value))
        throw ArgumentError(
            text(optimizer, ": ", option, " must be finite and not negative, but is ", value));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::vector<std::size_t> parameters_without_decay(std::span<const ParameterRef> parameters) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].shape.size() <= 1) indices.push_back(i);
    }
    return indices;
}

}  // namespace DPTK_NAMESPACE
