/// Losses of a batch and their gradients: softmax cross-entropy for classification, with label smoothing and
/// class weights, and the mean squared error.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// Options of softmax_cross_entropy, with PyTorch's names.
struct CrossEntropyOptions {
    /// The part of the target that is spread evenly over all classes; in [0, 1).
    double label_smoothing = 0;
    /// The weight of each class, not negative. Empty: 1 for all classes. Must live as long as the call.
    std::span<const double> weight = {};
};

/// The loss of a batch, or of a part of it.
struct LossResult {
    /// The mean over the samples, in nats; with class weights, the weighted mean.
    double loss = 0;
    /// The number of samples whose largest logit is that of their label. Among equal logits, the first
    /// counts as the largest. nullopt if the loss is not that of a classification: there is no accuracy then.
    std::optional<std::size_t> correct = std::nullopt;
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

inline void check_options(const CrossEntropyOptions& options, std::size_t classes) {
    if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
        throw ArgumentError(dptk::detail::text(
            "softmax_cross_entropy: expected a label_smoothing in [0, 1), got ", options.label_smoothing));
    if (!options.weight.empty() && options.weight.size() != classes)
        throw ArgumentError(dptk::detail::text("softmax_cross_entropy: expected ", classes,
                                               " weights, one for each class, got ", options.weight.size()));
    for (const double weight : options.weight) {
        if (!(weight >= 0) || !std::isfinite(weight))
            throw ArgumentError(dptk::detail::text(
                "softmax_cross_entropy: expected weights that are finite and not negative, got ", weight));
    }
}

/// Returns whether a label is in [0, classes); false for negative labels.
template <std::integral Label>
bool is_class(Label label, std::size_t classes) {
    return label >= 0 && static_cast<std::make_unsigned_t<Label>>(label) < classes;
}

}  // namespace detail

/// Computes softmax cross-entropy, as PyTorch's CrossEntropyLoss: the mean over the batch of log(Σ
/// exp(logits)) - logits[label]. `logits` are [n, classes], row-major, with n `labels`, each in [0, classes).
/// Resizes `gradient` to [n, classes], and sets it to the gradient of the mean with respect to the logits:
/// (softmax(logits) - one_hot(label)) / n.
///
/// With label smoothing ε and class weights w, a sample's loss is (1 - ε) w[label] L[label] + ε / classes Σ
/// w[c] L[c] with L[c] = log(Σ exp(logits)) - logits[c], and the sum over the batch is divided by the sum of
/// w[label]. (The mean over ranks then differs from that of one process, unless each rank passes this sum as
/// its sample count.)
///
/// Throws ArgumentError if a label is not a class, if the numbers of labels and samples differ, if an option
/// is out of range, or if all weights of the labels are 0.
template <std::floating_point T, std::integral Label>
LossResult softmax_cross_entropy(const Tensor<T>& logits, std::span<const Label> labels, Tensor<T>& gradient,
                                 const CrossEntropyOptions& options = {}) {
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
    detail::check_options(options, classes);
    const auto weight_of = [&](std::size_t c) { return options.weight.empty() ? 1.0 : options.weight[c]; };
    double all_weights = 0;
    for (const Label label : labels) all_weights += weight_of(static_cast<std::size_t>(label));
    if (all_weights == 0)
        throw ArgumentError("softmax_cross_entropy: the weights of the labels' classes are all 0");
    double class_weights = 0;
    for (std::size_t c = 0; c < classes; ++c) class_weights += weight_of(c);
    const double spread = options.label_smoothing / static_cast<double>(classes);
    const bool is_plain = options.weight.empty() && spread == 0;

    gradient.resize(logits.shape());
    LossResult result{.correct = 0};
    const T scale = T{1} / static_cast<T>(all_weights);
    for (std::size_t i = 0; i < n; ++i) {
        const std::span<const T> row = logits.values().subspan(i * classes, classes);
        const std::span<T> out = gradient.values().subspan(i * classes, classes);
        const auto label = static_cast<std::size_t>(labels[i]);
        const std::size_t largest = detail::index_of_largest(row);
        const double log_sum = detail::softmax(row, largest, out) + static_cast<double>(row[largest]);
        if (largest == label) ++*result.correct;
        if (is_plain) {
            result.loss += log_sum - static_cast<double>(row[label]);
            out[label] -= T{1};
        } else {
            const double own = (1 - options.label_smoothing) * weight_of(label);
            const T total = static_cast<T>(own + spread * class_weights);
            result.loss += own * (log_sum - static_cast<double>(row[label]));
            for (std::size_t c = 0; c < classes; ++c) {
                result.loss += spread * weight_of(c) * (log_sum - static_cast<double>(row[c]));
                out[c] = total * out[c] - static_cast<T>(spread * weight_of(c));
            }
            out[label] -= static_cast<T>(own);
        }
        for (T& value : out) value *= scale;
    }
    result.loss /= all_weights;
    return result;
}

/// Computes softmax cross-entropy for labels in a container.
template <std::floating_point T, class Labels>
    requires requires(const Labels& labels) { std::span(labels); }
LossResult softmax_cross_entropy(const Tensor<T>& logits, const Labels& labels, Tensor<T>& gradient,
                                 const CrossEntropyOptions& options = {}) {
    using Label = std::remove_cv_t<typename decltype(std::span(labels))::element_type>;
    return softmax_cross_entropy(logits, std::span<const Label>(labels), gradient, options);
}

/// Computes the mean squared error over all elements, as PyTorch's MSELoss. Resizes `gradient` to the shape
/// of `outputs`, and sets it to the gradient 2 (outputs - targets) / size. Throws ArgumentError if the shapes
/// differ, or are empty.
template <std::floating_point T>
double mean_squared_error(const Tensor<T>& outputs, const Tensor<T>& targets, Tensor<T>& gradient) {
    if (outputs.shape() != targets.shape() || outputs.size() == 0)
        throw ArgumentError(dptk::detail::text("mean_squared_error: expected targets of the outputs' shape ",
                                               dptk::detail::shape_text(outputs.shape()), ", not empty, got ",
                                               dptk::detail::shape_text(targets.shape())));
    gradient.resize(outputs.shape());
    double sum = 0;
    const T scale = T{2} / static_cast<T>(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const T difference = outputs[i] - targets[i];
        sum += static_cast<double>(difference) * static_cast<double>(difference);
        gradient[i] = scale * difference;
    }
    return sum / static_cast<double>(outputs.size());
}

}  // namespace DPTK_NAMESPACE::nn
