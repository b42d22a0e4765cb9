/// Softmax cross-entropy, the loss for classification. Computes the mean loss of a batch, the gradient of
/// this mean, and the number of correct predictions, in one pass over row-major logits.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// The loss of a batch, or of a part of it.
struct LossResult {
    /// The mean over the samples, in nats.
    double loss = 0;
    /// The number of samples whose largest logit is that of their label. Among equal logits, the first
    /// counts as the largest.
    std::size_t correct = 0;
};

namespace detail {

/// Processes one sample: writes softmax(logits) to `probabilities`, and returns log(Σ exp(logit -
/// logits[largest])). `largest` is the index of the largest logit.
template <std::floating_point T>
double softmax(std::span<const T> logits, std::size_t largest, std::span<T> probabilities) {
    const double shift = static_cast<double>(logits[largest]);
    double sum = 0;
    for (const T logit : logits) sum += std::exp(static_cast<double>(logit) - shift);
    for (std::size_t c = 0; c < logits.size(); ++c)
        probabilities[c] = static_cast<T>(std::exp(static_cast<double>(logits[c]) - shift) / sum);
    return std::log(sum);
}

template <std::floating_point T>
std::size_t index_of_largest(std::span<const T> logits) {
    std::size_t best = 0;
    for (std::size_t c = 1; c < logits.size(); ++c)
        if (logits[c] > logits[best]) best = c;
    return best;
}

/// Returns whether a label is in [0, classes); false for negative labels.
template <std::integral Label>
bool is_class(Label label, std::size_t classes) {
    return label >= 0 && static_cast<std::make_unsigned_t<Label>>(label) < classes;
}

}  // namespace detail

/// Computes softmax cross-entropy: the mean over the batch of log(Σ exp(logits)) - logits[label]. `logits`
/// are [n, classes], row-major, with n `labels`, each in [0, classes). Resizes `gradient` to [n, classes],
/// and sets it to the gradient of the mean with respect to the logits: (softmax(logits) - one_hot(label)) /
/// n. Throws ArgumentError if a label is not a class, or if the numbers of labels and samples differ.
template <std::floating_point T, std::integral Label>
LossResult softmax_cross_entropy(const Tensor<T>& logits, std::span<const Label> labels,
                                 Tensor<T>& gradient) {
    if (logits.shape().size() != 2 || logits.size() == 0)
        throw ArgumentError(
            dptk::detail::text("softmax_cross_entropy: expected non-empty logits [n, classes], got ",
                               dptk::detail::shape_text(logits.shape())));
    const std::size_t n = logits.shape()[0];
    const std::size_t classes = logits.shape()[1];
    if (labels.size() != n)
        throw ArgumentError(dptk::detail::text("softmax_cross_entropy: expected ", n,
                                               " labels, one per sample, got ", labels.size()));
    for (std::size_t i = 0; i < n; ++i)
        if (!detail::is_class(labels[i], classes))
            throw ArgumentError(dptk::detail::text("softmax_cross_entropy: expected labels in [0, ", classes,
                                                   "), got ", labels[i], " for sample ", i));

    gradient.resize(logits.shape());
    LossResult result;
    const T scale = T{1} / static_cast<T>(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::span<const T> row = logits.values().subspan(i * classes, classes);
        const std::span<T> out = gradient.values().subspan(i * classes, classes);
        const auto label = static_cast<std::size_t>(labels[i]);
        const std::size_t largest = detail::index_of_largest(row);
        result.loss += detail::softmax(row, largest, out) + static_cast<double>(row[largest]) -
                       static_cast<double>(row[label]);
        if (largest == label) ++result.correct;
        out[label] -= T{1};
        for (T& value : out) value *= scale;
    }
    result.loss /= static_cast<double>(n);
    return result;
}

/// Computes softmax cross-entropy for labels in a container.
template <std::floating_point T, class Labels>

    requires requires(const Labels& labels) { std::span(labels); }

LossResult softmax_cross_entropy(const Tensor<T>& logits, const Labels& labels, Tensor<T>& gradient) {
    using Label = std::remove_cv_t<typename decltype(std::span(labels))::element_type>;
    return softmax_cross_entropy(logits, std::span<const Label>(labels), gradient);
}

}  // namespace DPTK_NAMESPACE::nn
