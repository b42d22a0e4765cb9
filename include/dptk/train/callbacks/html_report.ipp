#pragma once

#include "dptk/train/callbacks/html_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/replacement_file.hpp"
#include "dptk/train/detail/html.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Colors are those of Okabe and Ito, which color-blind readers can distinguish; lines differ in dashes too.
inline constexpr std::string_view html_report_style = R"(
:root { color-scheme: light dark; --back: #fff; --text: #1b1b1b; --muted: #595959; --rule: #d4d4d4;
  --train: #b34700; --test: #0067a3; --good: 0 103 163; --bad: 213 94 0; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181b; --text: #e8e8e8; --muted: #a6a6a6; --rule: #3c4046;
    --train: #f0a35e; --test: #6cbcf0; --good: 86 180 233; --bad: 230 140 40; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 74rem; background: var(--back); color: var(--text);
  font: 1rem/1.45 system-ui, sans-serif; }
h1 { margin: .5rem 0 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; font-weight: 600; }
p, figcaption { color: var(--muted); }
p { margin: .3rem 0 .6rem; max-width: 65ch; }
dl.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; }
dl.tiles div { flex: 1 1 9rem; padding: .5rem .75rem; border: 1px solid var(--rule); border-radius: .4rem; }
dt { color: var(--muted); font-size: .875rem; }
dd { margin: 0; }
dl.tiles dd { font-size: 1.4rem; font-variant-numeric: tabular-nums; }
dl.settings { columns: 20rem; margin: .5rem 0; }
dl.settings div { break-inside: avoid; display: flex; gap: 1rem; justify-content: space-between;
  border-bottom: 1px solid var(--rule); }
dl.settings dd { overflow-wrap: anywhere; text-align: right; }
summary { cursor: pointer; }
figure { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); gap: 1.25rem; }
svg { display: block; width: 100%; height: auto; font-size: 13px; }
svg text { fill: var(--muted); }
svg text.x { text-anchor: middle; }
svg text.y { text-anchor: end; dominant-baseline: central; }
svg .grid { stroke: var(--rule); }
.train { --color: var(--train); --dash: 7 4; }
.test { --color: var(--test); --dash: none; }
.line path { fill: none; stroke: var(--color); stroke-width: 2; stroke-dasharray: var(--dash); }
.line circle { fill: var(--color); }
.key { display: inline-block; width: 1.6rem; margin: 0 .4rem .25rem .8rem; border-top: 3px solid var(--color); }
.key.train { border-top-style: dashed; }
.pair { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.pair section { flex: 1 1 33rem; min-width: 0; }
.scroll { overflow: auto; max-height: 36rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th { font-weight: 600; }
thead th { position: sticky; top: 0; background: var(--back); vertical-align: bottom; white-space: normal; }
tr.best td, tr.best th { font-weight: 700; }
.confusion td, .confusion th { padding: .2rem .35rem; text-align: center; }
.confusion td { border: 1px solid var(--back); min-width: 2.3rem; }
.confusion .vertical { writing-mode: vertical-rl; text-align: left; }
.right { background: rgb(var(--good) / calc(var(--part) * .55)); }
.wrong { background: rgb(var(--bad) / calc(var(--part) * .55)); }
.none { opacity: .4; }
.share { background: linear-gradient(90deg, rgb(var(--good) / .28) calc(var(--part) * 100%), transparent 0); }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem; }
.samples img { width: 100%; max-width: 8.5rem; height: auto; border: 1px solid var(--rule); }
.samples img.small { image-rendering: pixelated; }
.samples figcaption { font-size: .875rem; overflow-wrap: anywhere; }
.bar { display: flex; width: 14rem; height: .9rem; }
.bar span { width: calc(var(--part) * 100%); }
.computing { background: rgb(var(--good)); }
.communicating { background: rgb(var(--bad)); }
.other { background: var(--rule); }
)";

using HtmlRow = std::vector<std::string>;

/// Returns a table row, whose first cell is a heading. `css_class` may be empty.
[[nodiscard]] DPTK_INLINE std::string html_row(const HtmlRow& cells, std::string_view css_class = "") {
    std::string out = css_class.empty() ? "<tr>" : text("<tr class=\"", css_class, "\">");
    for (std::size_t i = 0; i < cells.size(); ++i)
        out += i == 0 ? text("<th scope=\"row\">", cells[i], "</th>") : text("<td>", cells[i], "</td>");
    return out + "</tr>\n";
}

[[nodiscard]] DPTK_INLINE std::string html_head(const HtmlRow& cells) {
    std::string out = "<thead><tr>";
    for (const std::string& cell : cells) out += text("<th scope=\"col\">", cell, "</th>");
    return out + "</tr></thead>\n<tbody>\n";
}

/// A section of the page with a table.
struct HtmlSection {
    std::string_view heading;
    std::string_view explanation;
    std::string_view css_class = "";  // of the table
};

/// The table scrolls on narrow screens, by the keyboard too. Its rows begin with those of html_head().
[[nodiscard]] DPTK_INLINE std::string to_html(const HtmlSection& section, std::string_view rows) {
    return text("<section><h2>", section.heading, "</h2>\n<p>", section.explanation,
                "</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", section.heading,
                "\">\n<table class=\"", section.css_class, "\">\n", rows,
                "</tbody></table>\n</div></section>\n");
}

[[nodiscard]] DPTK_INLINE std::string percent(double fraction) {
    return std::isfinite(fraction) ? html_fixed(100 * fraction, 2) + " %" : "–";
}

[[nodiscard]] DPTK_INLINE std::string html_seconds(double duration) {
    return text("<span class=\"time\">", html_fixed(duration, 2), " s</span>");
}

/// Returns a number with a background: `css_class` is its color, and `part`, in [0, 1], how strong or long.
[[nodiscard]] DPTK_INLINE std::string shaded_cell(std::string_view css_class, double part,
                                                  std::string_view content) {
    return text("<td class=\"", css_class, "\" style=\"--part:", html_fixed(part, 3), "\">", content,
                "</td>");
}

/// How one rank spent the last epoch, in seconds, by its own clock.
struct RankTimes {
    double training;       // the epoch's steps
    double computing;      // see StepTimes::compute; NaN if it is not measured
    double communicating;  // sending gradients, except while computing; NaN if it is not measured
    double evaluation;
};

/// Writes the parts of a page.
class HtmlReportPage {
  public:
    using Epoch = ReportedEpoch;

    HtmlReportPage(const HtmlReportOptions& options, const std::vector<Epoch>& epochs)
        : options_(options), epochs_(epochs) {}

    [[nodiscard]] std::string text_of(const TrainingStatus& status, const std::string& ranks,
                                      const std::vector<RankTimes>& times) const {
        const std::string title = html_escaped(options_.title);
        std::string page = text(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
            "style-src 'unsafe-inline'\"/>\n<title>",
            title, "</title>\n<style>", html_report_style, "</style>\n</head>\n<body>\n<h1>", title,
            "</h1>\n<p>Epoch ", status.epoch + 1, " of ", status.epochs, ", step ",
            grouped(static_cast<double>(status.step)), ", ", html_escaped(ranks), "</p>\n");
        page += tiles(status) + settings() + charts() + "<div class=\"pair\">\n" + confusion() + classes() +
                "</div>\n" + samples() + epoch_table() + rank_table(times);
        return page + "</body>\n</html>\n";
    }

  private:
    [[nodiscard]] const Epoch& best() const {
        return *std::max_element(epochs_.begin(), epochs_.end(), [&](const Epoch& a, const Epoch& b) {
            return has_accuracy() ? a.test_accuracy < b.test_accuracy : a.test_loss > b.test_loss;
        });
    }

    /// Whether the model reports an accuracy.
    [[nodiscard]] bool has_accuracy() const { return !std::isnan(epochs_.back().test_accuracy); }

    [[nodiscard]] std::string tiles(const TrainingStatus& status) const {
        const auto tile = [](std::string_view name, std::string_view value) {
            return text("<div><dt>", name, "</dt><dd>", value, "</dd></div>\n");
        };
        std::string out = "<dl class=\"tiles\">\n";
        if (has_accuracy()) out += tile("test accuracy", percent(status.test.accuracy));
        if (options_.classes != nullptr &&
            options_.classes->options().top_k < options_.classes->matrix().classes())
            out += tile(text("test accuracy, top ", options_.classes->options().top_k),
                        percent(options_.classes->top_k_accuracy()));
        out += has_accuracy()
                   ? tile(text("best test accuracy, epoch ", best().epoch), percent(best().test_accuracy))
                   : tile(text("best test loss, epoch ", best().epoch), html_fixed(best().test_loss, 4));
        out += tile("test loss", html_fixed(status.test.loss, 4)) +
               tile("training loss", html_fixed(status.training.loss, 4)) +
               tile("samples per second",
                    text("<span class=\"time\">", grouped(status.samples_per_second), "</span>"));
        return out + "</dl>\n";
    }

    [[nodiscard]] std::string settings() const {
        if (options_.settings.empty()) return "";
        std::string out = "<details><summary>Settings</summary>\n<dl class=\"settings\">\n";
        for (const auto& [name, value] : options_.settings)
            out += text("<div><dt>", html_escaped(name), "</dt><dd>", html_escaped(value), "</dd></div>\n");
        return out + "</dl></details>\n";
    }

    template <class Value>
    [[nodiscard]] std::vector<double> by_epoch(Value&& value) const {
        std::vector<double> values;
        for (const Epoch& epoch : epochs_) values.push_back(value(epoch));
        return values;
    }

    [[nodiscard]] std::string charts() const {
        const std::vector<double> epochs = by_epoch([](const Epoch& e) { return e.epoch; });
        const auto line = [&](const char* name, const char* css_class, double Epoch::*member, double scale) {
            return ChartLine{name, css_class, by_epoch([&](const Epoch& e) { return scale * (e.*member); })};
        };
        std::string out = "<h2>Curves</h2>\n<div class=\"charts\">\n";
        out += to_html({.title = "Loss",
                        .unit = "mean loss per sample",
                        .epochs = epochs,
                        .lines = {line("training", "train", &Epoch::train_loss, 1),
                                  line("test", "test", &Epoch::test_loss, 1)}});
        out += to_html({.title = "Accuracy",
                        .unit = "accuracy (%)",
                        .epochs = epochs,
                        .lines = {line("training", "train", &Epoch::train_accuracy, 100),
                                  line("test", "test", &Epoch::test_accuracy, 100)},
                        .begins_at_zero = false});
        out += to_html({.title = "Learning rate",
                        .unit = "learning rate",
                        .epochs = epochs,
                        .lines = {line("of the epoch's last step", "test", &Epoch::lr, 1)}});
        return out + "</div>\n";
    }

    /// Whether there is an evaluation with results by class.
    [[nodiscard]] bool has_classes() const {
        return options_.classes != nullptr && options_.classes->matrix().classes() > 0;
    }

    [[nodiscard]] std::string class_heading(std::size_t c, const char* scope, bool is_vertical) const {
        const std::string name = html_escaped(options_.classes->name_of(c));
        return text("<th scope=\"", scope, "\">",
                    is_vertical ? text("<span class=\"vertical\">", name, "</span>") : name, "</th>");
    }

    [[nodiscard]] std::string confusion() const {
        if (!has_classes()) return "";
        const ConfusionMatrix& matrix = options_.classes->matrix();
        if (matrix.classes() > most_shown_classes) return frequent_confusions();
        std::uint64_t most_errors = 1;
        bool has_long_names = false;
        for (std::size_t label = 0; label < matrix.classes(); ++label) {
            if (options_.classes->name_of(label).size() > 4) has_long_names = true;
            for (std::size_t c = 0; c < matrix.classes(); ++c)
                if (c != label) most_errors = std::max(most_errors, matrix.at(label, c));
        }
        std::string table = "<thead><tr><td></td>";
        for (std::size_t c = 0; c < matrix.classes(); ++c) table += class_heading(c, "col", has_long_names);
        table += "</tr></thead>\n<tbody>\n";
        for (std::size_t label = 0; label < matrix.classes(); ++label) {
            table += "<tr>" + class_heading(label, "row", false);
            const double recall = matrix.result(label).recall;
            for (std::size_t c = 0; c < matrix.classes(); ++c) {
                const auto count = static_cast<double>(matrix.at(label, c));
                if (count == 0) {
                    table += "<td><span class=\"none\">0</span></td>";
                } else if (c == label) {
                    table += shaded_cell("right", recall, grouped(count));
                } else {
                    table += shaded_cell("wrong", count / static_cast<double>(most_errors), grouped(count));
                }
            }
            table += "</tr>\n";
        }
        return to_html(
            {"Confusion matrix",
             "Number of test samples by label (rows) and predicted class (columns). Blue: correct, "
             "as a part of the label's samples. Orange: errors, relative to the most frequent one.",
             "confusion"},
            table);
    }

    /// The most frequent errors, for a matrix that is too large for a table.
    [[nodiscard]] std::string frequent_confusions() const {
        constexpr std::size_t most_rows = 20;
        struct Confusion {
            std::uint64_t count;
            std::size_t label, predicted;
        };
        const ConfusionMatrix& matrix = options_.classes->matrix();
        std::vector<Confusion> all;
        for (std::size_t label = 0; label < matrix.classes(); ++label)
            for (std::size_t c = 0; c < matrix.classes(); ++c)
                if (c != label && matrix.at(label, c) > 0) all.push_back({matrix.at(label, c), label, c});
        std::stable_sort(all.begin(), all.end(),
                         [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
        if (all.size() > most_rows) all.resize(most_rows);
        std::string table = html_head({"label", "predicted class", "test samples"});
        for (const Confusion& one : all)
            table += html_row({html_escaped(options_.classes->name_of(one.label)),
                               html_escaped(options_.classes->name_of(one.predicted)),
                               grouped(static_cast<double>(one.count))});
        return to_html({"Confusions", "The most frequent errors."}, table);
    }

    [[nodiscard]] std::string classes() const {
        if (!has_classes()) return "";
        const ConfusionMatrix& matrix = options_.classes->matrix();
        const auto row = [](const std::string& name, const ClassResult& result) {
            std::string out = text("<tr><th scope=\"row\">", name, "</th>");
            for (const double value : {result.precision, result.recall, result.f1})
                out += shaded_cell("share", value, percent(value));
            return text(out, "<td>", grouped(static_cast<double>(result.support)), "</td></tr>\n");
        };
        std::string table = html_head({"class", "precision", "recall", "F1", "samples"});
        for (std::size_t c = 0; c < matrix.classes(); ++c)
            table += row(html_escaped(options_.classes->name_of(c)), matrix.result(c));
        table += row("mean", matrix.macro_mean()) + row("weighted mean", matrix.weighted_mean());
        return to_html(
            {"Results by class",
             "Precision: the part of the samples predicted as a class that belongs to it. Recall: the "
             "part of the samples of a class that was predicted as such. F1: the harmonic mean of "
             "both."},
            table);
    }

    [[nodiscard]] std::string samples() const {
        if (options_.misclassified == nullptr) return "";
        const std::vector<MisclassifiedSample>& samples = options_.misclassified->samples();
        std::string out = "<h2>Misclassified samples</h2>\n";
        if (samples.empty()) return out + "<p>There are none.</p>\n";
        out +=
            "<p>The test samples for which the network gave a wrong class the highest probability.</p>\n"
            "<div class=\"samples\">\n";
        for (const MisclassifiedSample& sample : samples) {
            const std::string label = html_escaped(options_.misclassified->name_of(sample.label));
            const std::string predicted = html_escaped(options_.misclassified->name_of(sample.predicted));
            out += "<figure>";
            if (!sample.image.pixels.empty())
                out += text("<img class=\"", sample.image.width < 100 ? "small" : "large", "\" width=\"",
                            sample.image.width, "\" height=\"", sample.image.height, "\" alt=\"", label,
                            ", predicted as ", predicted, "\" src=\"", png_data_uri(sample.image), "\"/>");
            out += text("<figcaption>label <b>", label, "</b>, predicted <b>", predicted, "</b><br/>",
                        percent(sample.score), ", sample ", sample.position, "</figcaption></figure>\n");
        }
        return out + "</div>\n";
    }

    [[nodiscard]] std::string epoch_table() const {
        std::string table =
            html_head({"epoch", "step", "learning rate", "training loss", "training accuracy", "test loss",
                       "test accuracy", "samples per second", "training", "evaluation"});
        for (const Epoch& e : epochs_)
            table += html_row(
                {html_fixed(e.epoch, 0), grouped(e.step), html_general(e.lr, 4), html_fixed(e.train_loss, 4),
                 percent(e.train_accuracy), html_fixed(e.test_loss, 4), percent(e.test_accuracy),
                 text("<span class=\"time\">", grouped(e.samples_per_second), "</span>"),
                 html_seconds(e.train_seconds), html_seconds(e.test_seconds)},
                &e == &best() ? "best" : "");
        return to_html({"Epochs", text("The epoch with the best test ", has_accuracy() ? "accuracy" : "loss",
                                       " is bold.")},
                       table);
    }

    [[nodiscard]] std::string rank_table(const std::vector<RankTimes>& times) const {
        const bool is_measured = std::isfinite(times.front().computing);
        HtmlRow head = {"rank", "training", "evaluation"};
        if (is_measured) head = {"rank", "training", "computing", "communicating", "other", "", "evaluation"};
        std::string table = html_head(head);
        for (std::size_t rank = 0; rank < times.size(); ++rank) {
            const auto& [training, computing, communicating, evaluation] = times[rank];
            HtmlRow row = {text(rank), html_seconds(training)};
            if (is_measured) {
                const double other = std::max(training - computing - communicating, 0.0);
                row.insert(row.end(), {html_seconds(computing), html_seconds(communicating),
                                       html_seconds(other), bar({computing, communicating, other})});
            }
            row.push_back(html_seconds(evaluation));
            table += html_row(row);
        }
        return to_html(
            {"Time by rank, in the last epoch",
             is_measured ? "Computing (blue): forward and backward passes. Communicating (orange): sending "
                           "gradients and waiting for other ranks, except during backward passes. Other "
                           "(gray): loading samples, the optimizer, and callbacks."
                         : "How long each rank computed is not measured in this configuration."},
            table);
    }

    /// Returns a bar of three parts.
    [[nodiscard]] static std::string bar(const std::array<double, 3>& parts) {
        constexpr const char* names[] = {"computing", "communicating", "other"};
        const double sum = std::max(parts[0] + parts[1] + parts[2], 1e-9);
        std::string out = "<span class=\"bar\" aria-hidden=\"true\">";
        for (std::size_t i = 0; i < parts.size(); ++i)
            out += text("<span class=\"", names[i], "\" style=\"--part:", html_fixed(parts[i] / sum, 3),
                        "\"></span>");
        return out + "</span>";
    }

    const HtmlReportOptions& options_;
    const std::vector<Epoch>& epochs_;
};

/// Returns how this rank spent the epoch that has ended.
[[nodiscard]] DPTK_INLINE RankTimes times_of_epoch(const TrainingRun& run,
                                                   const std::optional<StepTimes>& begin) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    RankTimes times{run.status().training.seconds, unknown, unknown, run.status().test.seconds};
    const std::optional<StepTimes> end = run.step_times();
    if (!begin || !end) return times;
    times.computing = end->compute - begin->compute;
    times.communicating = end->communication - begin->communication - (end->overlapped - begin->overlapped);
    return times;
}

}  // namespace detail

DPTK_INLINE void HtmlReport::train_begin(TrainingRun& run) {
    if (run.status().step == 0) epochs_.clear();
    times_.reset();
}

DPTK_INLINE void HtmlReport::epoch_begin(TrainingRun& run) {
    times_ = run.step_times();
}

DPTK_INLINE void HtmlReport::epoch_end(TrainingRun& run) {
    ProcessGroup& group = run.group();
    const TrainingStatus& status = run.status();
    const std::vector<detail::RankTimes> times = group.all_gather_value(detail::times_of_epoch(run, times_));
    epochs_.push_back({static_cast<double>(status.epoch + 1), static_cast<double>(status.step), run.lr(),
                       status.training.loss, status.training.accuracy, status.test.loss, status.test.accuracy,
                       status.samples_per_second, status.training.seconds, status.test.seconds});
    on_all_or_none(group, [&] {
        if (group.rank() != 0) return;
        const std::string ranks =
            detail::text(group.size(), group.size() == 1 ? " rank" : " ranks", " over ", group.backend());
        const std::string page = detail::HtmlReportPage(options_, epochs_).text_of(status, ranks, times);
        detail::ReplacementFile file(file_);
        file.write(page.data(), page.size());
        file.complete();
    });
}

DPTK_INLINE void HtmlReport::save(TrainingRun& /*run*/, TrainingState& state) {
    if (epochs_.empty()) return;
    std::vector<double> values;
    for (const detail::ReportedEpoch& epoch : epochs_)
        for (const auto column : detail::ReportedEpoch::columns) values.push_back(epoch.*column);
    const Shape shape = {epochs_.size(), std::size(detail::ReportedEpoch::columns)};
    state.training.push_back(StateTensor::of<double>("html_report.epochs", shape, values));
}

DPTK_INLINE void HtmlReport::restore(TrainingRun& /*run*/, const TrainingState& state) {
    epochs_.clear();
    const StateTensor* const saved = TrainingState::find(state.training, "html_report.epochs");
    if (saved == nullptr) return;
    const std::vector<double> values = saved->values<double>();
    constexpr std::size_t columns = std::size(detail::ReportedEpoch::columns);
    if (saved->shape != Shape{values.size() / columns, columns})
        throw ArgumentError(detail::text("checkpoint: tensor html_report.epochs has the shape ",
                                         detail::shape_text(saved->shape), ", expected [epochs, ", columns,
                                         "]"));
    auto value = values.begin();
    epochs_.resize(saved->shape[0]);
    for (detail::ReportedEpoch& epoch : epochs_)
        for (const auto column : detail::ReportedEpoch::columns) epoch.*column = *value++;
}

}  // namespace DPTK_NAMESPACE
