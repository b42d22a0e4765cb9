#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/train/non_finite_loss.hpp"

namespace DPTK_NAMESPACE::detail {

template <class T>
[[nodiscard]] inline double norm_of(const Buffer& elements) {
    double sum = 0;
    for (const T element : std::span(static_cast<const T*>(elements.data), elements.count))
        sum += static_cast<double>(element) * static_cast<double>(element);
    return std::isnan(sum) ? std::abs(sum) : std::sqrt(sum);  // no "-nan"
}

/// Returns the norm of elements of type f32 or f64 as a text; "-" if there are none of these types.
[[nodiscard]] inline std::string norm_text(const Buffer& elements) {
    if (elements.data == nullptr) return "-";
    if (elements.dtype == DType::f32) return text(norm_of<float>(elements));
    if (elements.dtype == DType::f64) return text(norm_of<double>(elements));
    return "-";
}

DPTK_INLINE NonFiniteLoss describe_non_finite_loss(int rank, int epoch, std::int64_t step,
                                                   std::span<const std::size_t> samples,
                                                   std::span<const ParameterRef> parameters) {
    NonFiniteLoss found{.step = step};
    const std::string place = text("rank ", rank, ", step ", step + 1, ", in epoch ", epoch + 1);
    constexpr std::size_t shown = 4;
    found.summary = text("first on ", place, ", with the samples");
    for (std::size_t i = 0; i < std::min(samples.size(), shown); ++i)
        found.summary += text(i == 0 ? " " : ", ", samples[i]);
    if (samples.size() > shown) found.summary += text(" and ", samples.size() - shown, " more");
    found.details = text("the loss is no longer finite: ", place, "\nsamples:");
    for (const std::size_t sample : samples) found.details += text(' ', sample);
    found.details += "\nparameter, norm of its values, norm of its gradient:\n";
    for (const ParameterRef& parameter : parameters)
        found.details += text(parameter.name, ' ', norm_text(parameter.value_buffer()), ' ',
                              norm_text(parameter.gradient_buffer()), '\n');
    return found;
}

DPTK_INLINE void throw_non_finite_loss(ProcessGroup& group, const NonFiniteLoss* own, int epoch, double lr) {
    constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::int64_t> steps = group.all_gather_value(own == nullptr ? none : own->step);
    const auto first = std::min_element(steps.begin(), steps.end());
    const std::string advice = text("; a smaller learning rate than ", lr, " may help");
    if (*first == none)
        throw_agreed(group, NonFiniteLossError(
                                text("the loss is no longer finite in epoch ", epoch + 1, advice), {}, ""));
    const int rank = static_cast<int>(first - steps.begin());
    const bool is_own = group.rank() == rank;
    const std::vector<std::string> summaries = all_gather_text(group, is_own ? own->summary : "");
    std::vector<std::string> details = all_gather_text(group, is_own ? own->details : "");
    const auto place = static_cast<std::size_t>(rank);
    throw_agreed(group, NonFiniteLossError(text("the loss is no longer finite: ", summaries[place], advice),
                                           {.rank = rank, .step = static_cast<std::size_t>(*first)},
                                           std::move(details[place])));
}

}  // namespace DPTK_NAMESPACE::detail
