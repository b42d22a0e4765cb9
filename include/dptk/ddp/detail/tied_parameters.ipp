#pragma once

#include "dptk/ddp/detail/tied_parameters.hpp"

#include <cstdint>
#include <numeric>
#include <tuple>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// The bytes of one value or gradient.
struct ParameterMemory {
    Device device;
    std::uintptr_t begin;
    std::uintptr_t end;
    DType dtype;
    std::size_t parameter;
    bool is_gradient;

    [[nodiscard]] std::string text(const std::vector<ParameterRef>& parameters) const {
        return detail::text(is_gradient ? "the gradient of " : "the value of ", parameters[parameter].name);
    }
};

[[noreturn]] DPTK_INLINE void throw_overlap(const std::vector<ParameterRef>& parameters,
                                            const ParameterMemory& a, const ParameterMemory& b) {
    if (a.parameter == b.parameter && a.begin == b.begin)
        throw ArgumentError(text("parameter ", parameters[a.parameter].name,
                                 " has its value and its gradient in the same memory: expected two arrays"),
                            {.parameter = parameters[a.parameter].name});
    throw ArgumentError(text(a.text(parameters), " and ", b.text(parameters),
                             " overlap in memory: expected separate memory, or parameters that are tied as "
                             "a whole"),
                        {.parameter = parameters[b.parameter].name});
}

DPTK_INLINE TiedParameters::TiedParameters(const std::vector<ParameterRef>& parameters)
    : first_(parameters.size()),
      first_value_(parameters.size()),
      next_(parameters.size(), parameters.size()) {
    std::iota(first_.begin(), first_.end(), 0U);
    std::iota(first_value_.begin(), first_value_.end(), 0U);
    std::vector<ParameterMemory> all;
    const auto add = [&](std::size_t i, const Buffer& elements, bool is_gradient) {
        if (elements.data == nullptr || elements.count == 0) return;
        const auto begin = reinterpret_cast<std::uintptr_t>(elements.data);
        all.push_back({elements.device, begin, begin + elements.bytes(), elements.dtype, i, is_gradient});
    };
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        add(i, parameters[i].value_buffer(), false);
        add(i, parameters[i].gradient_buffer(), true);
    }
    const auto place = [](const ParameterMemory& memory) {
        return std::tuple(memory.device.type, memory.device.index, memory.begin, memory.end,
                          memory.is_gradient, memory.parameter);
    };
    detail::sort(all, [&](const auto& a, const auto& b) { return place(a) < place(b); });
    for (std::size_t n = 1; n < all.size(); ++n) {
        const ParameterMemory& before = all[n - 1];
        const ParameterMemory& now = all[n];
        if (now.device != before.device || now.begin >= before.end) continue;
        const bool is_same = now.begin == before.begin && now.end == before.end &&
                             now.is_gradient == before.is_gradient && now.dtype == before.dtype;
        if (!is_same) throw_overlap(parameters, before, now);
        std::vector<std::size_t>& first = now.is_gradient ? first_ : first_value_;
        first[now.parameter] = first[before.parameter];
        if (now.is_gradient) next_[before.parameter] = now.parameter;
    }
}

}  // namespace DPTK_NAMESPACE::detail
