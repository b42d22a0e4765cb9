#pragma once

#include "dptk/train/callbacks/misclassified.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <tuple>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/objects.hpp"
#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/loss.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns the probability of a class by softmax; 0 if the scores are not finite.
[[nodiscard]] DPTK_INLINE double probability(std::span<const float> scores, std::size_t c) noexcept {
    double sum = 0;
    for (const float score : scores) sum += std::exp(static_cast<double>(score) - scores[c]);
    return std::isnan(sum) ? 0 : 1 / sum;
}

/// The order of the samples.
[[nodiscard]] DPTK_INLINE bool precedes(const MisclassifiedSample& a, const MisclassifiedSample& b) noexcept {
    return a.score != b.score ? a.score > b.score : a.position < b.position;
}

/// What ranks send of a sample: its numbers, score and pixels.
using SentSample = std::tuple<std::array<std::uint64_t, 6>, double, std::vector<std::uint8_t>>;

[[nodiscard]] DPTK_INLINE std::vector<SentSample> as_sent(const std::vector<MisclassifiedSample>& samples) {
    std::vector<SentSample> sent;
    for (const auto& [position, label, predicted, score, image] : samples)
        sent.emplace_back(std::array<std::uint64_t, 6>{position, label, predicted, image.width, image.height,
                                                       image.channels},
                          score, image.pixels);
    return sent;
}

[[nodiscard]] DPTK_INLINE MisclassifiedSample from_sent(const SentSample& sent) {
    const auto& [numbers, score, pixels] = sent;
    const auto& [position, label, predicted, width, height, channels] = numbers;
    return {position, label, predicted, score, {width, height, channels, pixels}};
}

}  // namespace detail

DPTK_INLINE void Misclassified::test_begin(TrainingRun& /*run*/) {
    classes_ = 0;
    own_.clear();
}

DPTK_INLINE void Misclassified::test_batch(TrainingRun& run) {
    const BatchOutputs& outputs = run.test_outputs();
    classes_ = outputs.classes;
    std::vector<std::pair<MisclassifiedSample, std::size_t>> found;  // with their places in the batch
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const std::span<const float> scores = outputs.scores_of(i);
        const std::size_t predicted = nn::detail::index_of_largest(scores);
        const auto label = static_cast<std::size_t>(outputs.labels[i]);
        if (predicted != label)
            found.push_back(
                {{outputs.positions[i], label, predicted, detail::probability(scores, predicted), {}}, i});
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return detail::precedes(a.first, b.first); });
    for (auto& [sample, i] : found) {
        const auto place = std::lower_bound(own_.begin(), own_.end(), sample, detail::precedes);
        if (place - own_.begin() >= static_cast<std::ptrdiff_t>(options_.count)) break;
        sample.image = run.test_image(i);
        own_.insert(place, std::move(sample));
        if (own_.size() > options_.count) own_.pop_back();
    }
}

DPTK_INLINE void Misclassified::test_summary(TrainingRun& run) {
    ProcessGroup& group = run.group();
    detail::check_no_problem<ArgumentError>(
        group, classes_ == 0
                   ? ""
                   : detail::problem_of_names("Misclassified", options_.class_names.size(), classes_));
    samples_.clear();
    for (const std::vector<detail::SentSample>& received : group.gather_object(detail::as_sent(own_)))
        for (const detail::SentSample& sample : received) samples_.push_back(detail::from_sent(sample));
    std::sort(samples_.begin(), samples_.end(), detail::precedes);
    if (samples_.size() > options_.count) samples_.resize(options_.count);
    own_.clear();
}

DPTK_INLINE std::string Misclassified::text() const {
    std::string table = "| | sample | label | predicted | probability |\n|-|-|-|-|-|\n";
    for (std::size_t i = 0; i < samples_.size(); ++i) {
        const MisclassifiedSample& sample = samples_[i];
        table += detail::text("| ", i + 1, " | ", sample.position, " | ", name_of(sample.label), " | ",
                              name_of(sample.predicted), " | ", detail::fixed_text(sample.score, 4), " |\n");
    }
    return table;
}

}  // namespace DPTK_NAMESPACE
