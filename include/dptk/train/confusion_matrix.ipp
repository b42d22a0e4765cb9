#pragma once

#include "dptk/train/confusion_matrix.hpp"

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

[[nodiscard]] DPTK_INLINE double fraction(double part, double whole) noexcept {
    return whole == 0 ? 0 : part / whole;
}

/// Returns the means over the classes, with the weights that `weight_of` returns for their results.
template <class WeightOf>
[[nodiscard]] ClassResult mean_result(const ConfusionMatrix& matrix, WeightOf&& weight_of) noexcept {
    ClassResult sum;
    double weights = 0;
    for (std::size_t c = 0; c < matrix.classes(); ++c) {
        const ClassResult result = matrix.result(c);
        const double weight = weight_of(result);
        weights += weight;
        sum.precision += weight * result.precision;
        sum.recall += weight * result.recall;
        sum.f1 += weight * result.f1;
        sum.support += result.support;
    }
    return {fraction(sum.precision, weights), fraction(sum.recall, weights), fraction(sum.f1, weights),
            sum.support};
}

DPTK_INLINE std::string class_name(std::span<const std::string> names, std::size_t c) {
    return c < names.size() ? names[c] : std::to_string(c);
}

DPTK_INLINE std::string problem_of_names(std::string_view where, std::size_t names, std::size_t classes) {
    if (names == 0 || names == classes) return "";
    return text(where, ": expected ", classes, " class names, one for each class, got ", names);
}

}  // namespace detail

DPTK_INLINE std::uint64_t ConfusionMatrix::samples() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts_) sum += count;
    return sum;
}

DPTK_INLINE std::uint64_t ConfusionMatrix::correct() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t c = 0; c < classes_; ++c) sum += at(c, c);
    return sum;
}

DPTK_INLINE double ConfusionMatrix::accuracy() const noexcept {
    return detail::fraction(static_cast<double>(correct()), static_cast<double>(samples()));
}

DPTK_INLINE ClassResult ConfusionMatrix::result(std::size_t c) const noexcept {
    std::uint64_t predicted = 0, support = 0;
    for (std::size_t other = 0; other < classes_; ++other) {
        predicted += at(other, c);
        support += at(c, other);
    }
    const auto hits = static_cast<double>(at(c, c));
    return {detail::fraction(hits, static_cast<double>(predicted)),
            detail::fraction(hits, static_cast<double>(support)),
            detail::fraction(2 * hits, static_cast<double>(predicted + support)), support};
}

DPTK_INLINE ClassResult ConfusionMatrix::macro_mean() const noexcept {
    return detail::mean_result(*this, [](const ClassResult&) { return 1.0; });
}

DPTK_INLINE ClassResult ConfusionMatrix::weighted_mean() const noexcept {
    return detail::mean_result(*this,
                               [](const ClassResult& result) { return static_cast<double>(result.support); });
}

}  // namespace DPTK_NAMESPACE
