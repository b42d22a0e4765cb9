#pragma once

#include "dptk/train/callbacks/class_report.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/replacement_file.hpp"
#include "dptk/nn/loss.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The largest number of classes for which the confusion matrix is shown.
inline constexpr std::size_t most_shown_classes = 50;

DPTK_INLINE std::size_t rank_of_label(std::span<const float> scores, std::size_t label) noexcept {
    std::size_t before = 0;
    for (std::size_t c = 0; c < scores.size(); ++c)
        if (c < label ? !(scores[label] > scores[c]) : c > label && !(scores[label] >= scores[c])) ++before;
    return before;
}

[[nodiscard]] DPTK_INLINE std::string result_row(const std::string& name, std::size_t width,
                                                 const ClassResult& result) {
    return text(padded(name, width), "  ", padded(fixed_text(result.precision, 4), 9), "  ",
                fixed_text(result.recall, 4), "  ", fixed_text(result.f1, 4), "  ",
                padded(std::to_string(result.support), 7), '\n');
}

[[nodiscard]] DPTK_INLINE std::string confusion_table(const ClassReport& report, std::size_t name_width) {
    const ConfusionMatrix& matrix = report.matrix();
    std::size_t width = std::to_string(matrix.samples()).size();
    for (std::size_t c = 0; c < matrix.classes(); ++c) width = std::max(width, report.name_of(c).size());
    std::string table = padded("", name_width);
    for (std::size_t c = 0; c < matrix.classes(); ++c) table += "  " + padded(report.name_of(c), width);
    for (std::size_t label = 0; label < matrix.classes(); ++label) {
        table += '\n' + padded(report.name_of(label), name_width);
        for (std::size_t c = 0; c < matrix.classes(); ++c)
            table += "  " + padded(std::to_string(matrix.at(label, c)), width);
    }
    return table + '\n';
}

}  // namespace detail

DPTK_INLINE ClassReport::ClassReport(ClassReportOptions options) : options_(std::move(options)) {
    if (options_.top_k == 0) throw ArgumentError("ClassReport: top_k must be at least 1, got 0");
}

DPTK_INLINE void ClassReport::test_begin(TrainingRun& /*run*/) {
    own_ = ConfusionMatrix(0);
    own_top_k_ = 0;
}

DPTK_INLINE void ClassReport::test_batch(TrainingRun& run) {
    const BatchOutputs& outputs = run.test_outputs();
    if (own_.classes() == 0) own_ = ConfusionMatrix(outputs.classes);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const std::span<const float> scores = outputs.scores_of(i);
        const auto label = static_cast<std::size_t>(outputs.labels[i]);
        own_.add(label, nn::detail::index_of_largest(scores));
        if (detail::rank_of_label(scores, label) < options_.top_k) ++own_top_k_;
    }
}

DPTK_INLINE void ClassReport::test_summary(TrainingRun& run) {
    ProcessGroup& group = run.group();
    // A model of the program's own does not know it on a rank without samples.
    const std::size_t classes = group.all_reduce_value(own_.classes(), ReduceOp::max);
    detail::check_no_problem<ArgumentError>(
        group,
        classes == 0 ? "" : detail::problem_of_names("ClassReport", options_.class_names.size(), classes));
    matrix_ = own_.classes() == 0 ? ConfusionMatrix(classes) : own_;
    group.all_reduce(matrix_.counts());
    top_k_ = group.all_reduce_value(own_top_k_);
    on_all_or_none(group, [&] {
        if (group.rank() != 0 || options_.path.empty()) return;
        const std::string table = text();
        detail::ReplacementFile file(options_.path);
        file.write(table.data(), table.size());
        file.complete();
    });
}

DPTK_INLINE double ClassReport::top_k_accuracy() const noexcept {
    const std::uint64_t samples = matrix_.samples();
    return samples == 0 ? 0 : static_cast<double>(top_k_) / static_cast<double>(samples);
}

DPTK_INLINE std::string ClassReport::text() const {
    std::size_t width = std::string_view("weighted mean").size();
    for (std::size_t c = 0; c < matrix_.classes(); ++c) width = std::max(width, name_of(c).size());
    std::string table = detail::padded("class", width) + "  precision  recall      F1  support\n";
    for (std::size_t c = 0; c < matrix_.classes(); ++c)
        table += detail::result_row(name_of(c), width, matrix_.result(c));
    table += detail::result_row("mean", width, matrix_.macro_mean());
    table += detail::result_row("weighted mean", width, matrix_.weighted_mean());
    table += detail::text("\naccuracy: ", detail::fixed_text(matrix_.accuracy(), 4), " (", matrix_.correct(),
                          " of ", matrix_.samples(), " samples)\n");
    if (options_.top_k < matrix_.classes())
        table += detail::text("top-", options_.top_k, " accuracy: ", detail::fixed_text(top_k_accuracy(), 4),
                              '\n');
    if (matrix_.classes() > detail::most_shown_classes) return table;
    return table + "\nconfusion matrix (rows: labels, columns: predicted classes)\n" +
           detail::confusion_table(*this, width);
}

}  // namespace DPTK_NAMESPACE
