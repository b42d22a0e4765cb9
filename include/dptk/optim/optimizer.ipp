#pragma once

#include "dptk/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE const std::vector<std::size_t>& SteppedParameters::find(
    std::span<const ParameterRef> parameters) {
    values_now_.clear();
    for (const ParameterRef& parameter : parameters) {
        const bool has_gradient = parameter.count != 0 && parameter.gradient != nullptr;
        values_now_.push_back(has_gradient ? parameter.value : nullptr);
    }
    if (values_now_ == values_) return stepped_;
    values_.swap(values_now_);
    stepped_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i)
        if (values_[i] != nullptr) stepped_.push_back(i);
    detail::stable_sort(stepped_,
                        [&](std::size_t a, std::size_t b) { return std::less<>()(values_[a], values_[b]); });
    const auto repeats = [&](std::size_t a, std::size_t b) { return values_[a] == values_[b]; };
    stepped_.erase(std::unique(stepped_.begin(), stepped_.end(), repeats), stepped_.end());
    detail::sort(stepped_);
    return stepped_;
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
