#pragma once

#include "dptk/ddp/detail/tied_parameters.hpp"

#include <numeric>
#include <tuple>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string TiedParameters::Memory::text(const std::vector<ParameterRef>& parameters) const {
    return detail::text(is_gradient ? "the gradient of " : "the value of ", parameters[parameter].name);
}

DPTK_INLINE void TiedParameters::throw_overlap(const std::vector<ParameterRef>& parameters, const Memory& a,
                                               const Memory& b) {
    if (a.parameter == b.parameter && a.begin == b.begin)
        throw ArgumentError(text("parameter ", parameters[a.parameter].name,
                                 " has its value and its gradient in the same memory: expected two arrays"),
                            {.parameter = parameters[a.parameter].name});
    throw ArgumentError(text(a.text(parameters), " and ", b.text(parameters),
                             " overlap in memory: expected separate memory, or parameters that are tied as "
                             "a whole"),
                        {.parameter = parameters[b.parameter].name});
}

DPTK_INLINE TiedParameters::TiedParameters(const std::vector<ParameterRef>& parameters) {
    std::vector<ParameterAddresses> now;
    for (const ParameterRef& parameter : parameters) now.push_back({parameter.value, parameter.gradient});
    find(parameters, now);
}

DPTK_INLINE void TiedParameters::find(const std::vector<ParameterRef>& parameters,
                                      std::span<const ParameterAddresses> now) {
    const std::size_t size = parameters.size();
    first_.resize(size);
    first_value_.resize(size);
    next_.assign(size, size);
    std::iota(first_.begin(), first_.end(), 0U);
    std::iota(first_value_.begin(), first_value_.end(), 0U);
    all_.clear();
    const auto add = [&](std::size_t i, const Buffer& elements, bool is_gradient) {
        if (elements.data == nullptr || elements.count == 0) return;
        const auto begin = reinterpret_cast<std::uintptr_t>(elements.data);
        all_.push_back({elements.device, begin, begin + elements.bytes(), elements.dtype, i, is_gradient});
    };
    for (std::size_t i = 0; i < size; ++i) {
        add(i, parameters[i].value_buffer().at(now[i].value), false);
        add(i, parameters[i].gradient_buffer().at(now[i].gradient), true);
    }
    const auto place = [](const Memory& memory) {
        return std::tuple(memory.device.type, memory.device.index, memory.begin, memory.end,
                          memory.is_gradient, memory.parameter);
    };
    detail::sort(all_, [&](const auto& a, const auto& b) { return place(a) < place(b); });
    for (std::size_t n = 1; n < all_.size(); ++n) {
        const Memory& before = all_[n - 1];
        const Memory& memory = all_[n];
        if (memory.device != before.device || memory.begin >= before.end) continue;
        const bool is_same = memory.begin == before.begin && memory.end == before.end &&
                             memory.is_gradient == before.is_gradient && memory.dtype == before.dtype;
        if (!is_same) throw_overlap(parameters, before, memory);
        std::vector<std::size_t>& first = memory.is_gradient ? first_ : first_value_;
        first[memory.parameter] = first[before.parameter];
        if (memory.is_gradient) next_[before.parameter] = memory.parameter;
    }
}

}  // namespace DPTK_NAMESPACE::detail
