// Tests of what callbacks make of the outputs of an evaluation: results by class, misclassified samples and
// the HTML report.
#include <doctest/doctest.h>
#include <dptk/train.hpp>
#include <dptk/train/detail/html.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model.hpp"
#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::TrainingRun;
using test::Backend;

/// 30 of the digits, each of them three times, so that scores are equal.
dptk::ImageDataset repeated_digits() {
    const dptk::ImageDataset all = test::digits("train");
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < 90; ++i) places.push_back(i % 30);
    return all.subset(places);
}

/// What one pass over all samples finds.
struct Expected {
    dptk::ConfusionMatrix matrix{10};
    std::size_t top_3 = 0;
    std::vector<dptk::MisclassifiedSample> wrong;
};

dptk::Image as_image(const dptk::ImageDataset& samples, std::size_t i) {
    const auto pixels = samples.pixels().subspan(64 * i, 64);
    const auto [lowest, highest] = std::minmax_element(pixels.begin(), pixels.end());
    dptk::Image image{.width = 8, .height = 8, .channels = 1, .pixels = {}};
    for (const std::uint8_t pixel : pixels)
        image.pixels.push_back(
            static_cast<std::uint8_t>(std::lround(255.0 * (pixel - *lowest) / (*highest - *lowest))));
    return image;
}

Expected expected_for(const dptk::ImageDataset& samples) {
    dptk::nn::Network<Backend> net = test::small_convnet();
    net.set_mode(dptk::nn::Mode::evaluate);
    dptk::Tensor<float> input({samples.size(), 1, 8, 8});
    for (std::size_t i = 0; i < input.size(); ++i)
        input[i] = static_cast<float>(samples.pixels()[i]) * (1.0F / 16);
    const dptk::Tensor<float>& logits = net.forward(input);
    Expected expected;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::size_t label = samples.labels()[i];
        std::vector<std::pair<float, std::size_t>> order;  // the largest score first
        for (std::size_t c = 0; c < 10; ++c) order.emplace_back(-logits[10 * i + c], c);
        std::sort(order.begin(), order.end());
        expected.matrix.add(label, order[0].second);
        for (std::size_t k = 0; k < 3; ++k) expected.top_3 += order[k].second == label ? 1 : 0;
        if (order[0].second == label) continue;
        double sum = 0;
        for (const auto& [score, c] : order) sum += std::exp(double{order[0].first} - score);
        expected.wrong.push_back({i, label, order[0].second, 1 / sum, as_image(samples, i)});
    }
    std::stable_sort(expected.wrong.begin(), expected.wrong.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    return expected;
}

std::string text_of_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

/// Returns why the tags of a page are not balanced; empty if they are.
std::string problem_of_tags(std::string_view page) {
    std::vector<std::string> open;
    page.remove_prefix(std::min(page.size(), std::string_view("<!DOCTYPE html>").size()));
    for (std::size_t at = page.find_first_of("<>"); at != page.npos; at = page.find_first_of("<>", at)) {
        const std::size_t end = page.find_first_of("<>", at + 1);
        if (page[at] == '>' || end == page.npos || page[end] == '<')
            return "a bracket that is part of no tag: " + std::string(page.substr(at, 40));
        const std::string_view tag = page.substr(at + 1, end - at - 1);
        const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
        if (std::ranges::count(tag, '"') % 2 != 0) return "quotes in <" + std::string(tag) + ">";
        if (name.starts_with('/')) {
            if (open.empty() || '/' + open.back() != name) return "<" + name + "> closes no tag";
            open.pop_back();
        } else if (!tag.ends_with('/')) {
            open.push_back(name);
        }
        at = end + 1;
    }
    return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

/// Returns the page without durations.
std::string without_times(std::string page) {
    const std::string begin = "<span class=\"time\">";
    for (std::size_t at = page.find(begin); at != page.npos; at = page.find(begin, at))
        page.erase(at, page.find("</span>", at) - at);
    const std::size_t ranks = page.find("<section><h2>Time by rank");
    CHECK(ranks != page.npos);
    return page.substr(0, ranks);
}

/// Ends a run after a number of steps.
struct StopAfter : dptk::Callback {
    std::int64_t steps;
    explicit StopAfter(std::int64_t after) : steps(after) {}
    void batch_end(TrainingRun& run) override {
        if (run.status().step == steps) run.stop("enough steps");
    }
};

/// Continues a run.
struct ContinueFrom : dptk::Callback {
    const dptk::TrainingState& state;
    explicit ContinueFrom(const dptk::TrainingState& from) : state(from) {}
    void train_begin(TrainingRun& run) override { run.restore(state); }
};

}  // namespace

TEST_CASE("precision, recall and F1 are those of scikit-learn") {
    dptk::ConfusionMatrix matrix(4);  // no sample has class 3 as its label or prediction
    const std::size_t pairs[][2] = {{0, 0}, {0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 1}};
    for (const auto& [label, predicted] : pairs) matrix.add(label, predicted);
    const auto is = [](const dptk::ClassResult& result, double precision, double recall, double f1,
                       std::uint64_t support) {
        return result.precision == doctest::Approx(precision) && result.recall == doctest::Approx(recall) &&
               result.f1 == doctest::Approx(f1) && result.support == support;
    };
    CHECK(is(matrix.result(0), 2.0 / 3, 2.0 / 3, 2.0 / 3, 3));
    CHECK(is(matrix.result(1), 1.0 / 3, 1.0 / 2, 0.4, 2));
    CHECK(is(matrix.result(2), 0, 0, 0, 1));
    CHECK(is(matrix.result(3), 0, 0, 0, 0));
    CHECK(is(matrix.macro_mean(), 1.0 / 4, 7.0 / 24, 4.0 / 15, 6));
    CHECK(is(matrix.weighted_mean(), 4.0 / 9, 1.0 / 2, 7.0 / 15, 6));
    CHECK(matrix.accuracy() == 0.5);
    CHECK(dptk::ConfusionMatrix(0).accuracy() == 0);
}

TEST_CASE("among equal scores, those of lower classes come first") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto rank = [](std::vector<float> scores, std::size_t label) {
        return dptk::detail::rank_of_label(scores, label);
    };
    CHECK(rank({1, 3, 2}, 1) == 0);
    CHECK(rank({1, 3, 2}, 0) == 2);
    CHECK(rank({2, 2, 2}, 0) == 0);
    CHECK(rank({2, 2, 2}, 1) == 1);
    CHECK(rank({2, 2, 2}, 2) == 2);
    CHECK(rank({1, nan, 0}, 0) == 1);
    CHECK(rank({1, nan, 0}, 1) == 2);
}

TEST_CASE("results by class and misclassified samples over all ranks are those of one pass") {
    const dptk::ImageDataset samples = repeated_digits();
    const Expected expected = expected_for(samples);
    REQUIRE(expected.wrong.size() > 20);
    REQUIRE(expected.wrong[0].score == expected.wrong[1].score);
    const TemporaryFolder folder;
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(1));
            const auto& top_3 =
                trainer.add(dptk::ClassReport({.top_k = 3, .path = (folder / "classes.txt").string()}));
            const auto& top_1 = trainer.add(dptk::ClassReport({.top_k = 1}));
            const auto& wrong = trainer.add(dptk::Misclassified({.count = 20}));
            for (int pass = 0; pass < 2; ++pass) {
                const dptk::EpochResult result = trainer.evaluate(samples);
                CHECK(std::ranges::equal(top_3.matrix().counts(), expected.matrix.counts()));
                CHECK(top_3.top_k_accuracy() == static_cast<double>(expected.top_3) / 90);
                CHECK(top_1.top_k_accuracy() == result.accuracy);
                CHECK(top_1.matrix().accuracy() == result.accuracy);
                CHECK(wrong.samples().size() == (group.rank() == 0 ? 20 : 0));
                for (std::size_t i = 0; i < wrong.samples().size(); ++i) {
                    CAPTURE(i);
                    const dptk::MisclassifiedSample& found = wrong.samples()[i];
                    CHECK(found.position == expected.wrong[i].position);
                    CHECK(found.label == expected.wrong[i].label);
                    CHECK(found.predicted == expected.wrong[i].predicted);
                    CHECK(found.score == doctest::Approx(expected.wrong[i].score).epsilon(1e-12));
                    CHECK(found.image == expected.wrong[i].image);
                }
            }
            group.barrier();
            const std::string text = text_of_file(folder / "classes.txt");
            CHECK(text == top_3.text());
            CHECK(text.starts_with("        class  precision  recall      F1  support\n            0  "));
            CHECK(test::contains(text, "\ntop-3 accuracy: "));
            CHECK(test::contains(text, " of 90 samples)\n"));
        });
    }
}

TEST_CASE("a rank without samples takes part in the results by class") {
    const dptk::ImageDataset two = repeated_digits().subset(std::vector<std::size_t>{0, 1});
    dptk::launch_threads(3, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(1));
        const auto& classes = trainer.add(dptk::ClassReport());
        const auto& wrong = trainer.add(dptk::Misclassified());
        trainer.evaluate(two);
        CHECK(classes.matrix().samples() == 2);
        CHECK(wrong.samples().size() + classes.matrix().correct() ==
              (group.rank() == 0 ? 2 : classes.matrix().correct()));
    });
}

TEST_CASE("mistakes in reports are errors on all ranks") {
    CHECK_THROWS_WITH_AS(dptk::ClassReport({.top_k = 0}), "ClassReport: top_k must be at least 1, got 0",
                         dptk::ArgumentError);
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto fails = [&]<class E>(E, auto callback, const std::string& message) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(1));
            trainer.add(std::move(callback));
            return test::all_throw<E>(group, message, [&] { trainer.fit(samples, samples); });
        };
        const dptk::ArgumentError argument("");
        CHECK(fails(argument, dptk::ClassReport({.class_names = {"a", "b"}}),
                    "ClassReport: expected 10 class names, one for each class, got 2"));
        CHECK(fails(argument, dptk::Misclassified({.class_names = {"a"}}),
                    "Misclassified: expected 10 class names, one for each class, got 1"));
        CHECK(fails(dptk::Error(""), dptk::ClassReport({.path = (folder / "no/classes.txt").string()}),
                    "no/classes.txt"));
        CHECK(fails(dptk::Error(""), dptk::HtmlReport(folder / "no/report.html"), "no/report.html"));
    });
}

TEST_CASE("outputs of an evaluation are available after each of its batches, and only then") {
    struct Asks : dptk::Callback {
        void test_batch(TrainingRun& run) override {
            const dptk::BatchOutputs& outputs = run.test_outputs();
            CHECK(&outputs == &run.test_outputs());
            CHECK(outputs.classes == 10);
            CHECK(outputs.scores.size() == 10 * outputs.size());
            CHECK(outputs.positions.size() == outputs.size());
            CHECK_THROWS_AS((void)run.test_image(outputs.size()), dptk::ArgumentError);
        }
        void test_end(TrainingRun& run) override {
            CHECK_THROWS_WITH_AS((void)run.test_outputs(),
                                 "Trainer: test_outputs() can only be called in Callback::test_batch()",
                                 dptk::ArgumentError);
            CHECK_THROWS_AS((void)run.test_image(0), dptk::ArgumentError);
        }
    };
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const std::size_t shards : {std::size_t{0}, std::size_t{4}}) {
            dptk::nn::Network<Backend> net(
                dptk::nn::sequential({1, 8, 8}, {dptk::nn::Flatten{}, dptk::nn::Linear{10}}), 1);
            dptk::TrainerOptions options = test::small_options(1);
            options.reproducible_shards = shards;
            dptk::Trainer trainer(group, net, options);
            trainer.add(Asks());
            const auto& classes = trainer.add(dptk::ClassReport());
            const dptk::EpochResult result = trainer.evaluate(repeated_digits());
            CHECK(classes.matrix().accuracy() == result.accuracy);
            CHECK(trainer.step_times().has_value() == (shards == 0));
        }
    });
}

TEST_CASE("an HTML report has balanced tags and escaped texts") {
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    const std::string evil = "<script>alert('&\"')</script>";
    std::vector<std::string> names = {"zero", evil, "two", "\xff", "4", "5", "6", "7", "8", "9"};
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(2));
        const auto& classes = trainer.add(dptk::ClassReport({.class_names = names}));
        const auto& wrong = trainer.add(dptk::Misclassified({.class_names = names, .count = 90}));
        trainer.add(dptk::HtmlReport(folder / "report.html", {.title = evil,
                                                              .settings = {{"lr", "0.05"}, {evil, evil}},
                                                              .classes = &classes,
                                                              .misclassified = &wrong}));
        trainer.add(dptk::HtmlReport(folder / "short.html"));
        trainer.fit(samples, samples);
        if (group.rank() != 0) return;
        for (const char* name : {"report.html", "short.html"}) {
            CAPTURE(name);
            const std::string page = text_of_file(folder / name);
            CHECK(problem_of_tags(page) == "");
            CHECK(!test::contains(page, "<script"));
            CHECK(!test::contains(page, "http://"));
            CHECK(!test::contains(page, "https://"));
            CHECK(test::contains(page, "<p>Epoch 2 of 2, step 6, 2 ranks over "));
            CHECK(test::contains(page, "<th scope=\"row\">1</th><td>3</td>"));
        }
        const std::string page = text_of_file(folder / "report.html");
        const std::string escaped = "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;";
        CHECK(test::contains(page, "<h1>" + escaped + "</h1>"));
        CHECK(test::contains(page, "<dt>" + escaped + "</dt><dd>" + escaped + "</dd>"));
        CHECK(test::contains(page, "<th scope=\"row\">" + escaped + "</th>"));
        CHECK(test::contains(page, "<th scope=\"row\">?</th>"));
        CHECK(test::contains(page, "predicted <b>" + escaped + "</b>"));
        CHECK(test::contains(page, "src=\"data:image/png;base64,iVBORw0KGgo"));
        CHECK(test::contains(page, "<span class=\"computing\" style"));
    });
    CHECK(problem_of_tags("<!DOCTYPE html><p><br/></p>") == "");
    CHECK(problem_of_tags("<!DOCTYPE html><p><b></p>") == "</p> closes no tag");
    CHECK(problem_of_tags("<!DOCTYPE html><p>") == "<p> is not closed");
    CHECK(problem_of_tags("<!DOCTYPE html>1 < 2") != "");
}

TEST_CASE("a report with many classes lists the most frequent errors") {
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    for (const std::size_t count : {std::size_t{50}, std::size_t{51}}) {
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net(
                dptk::nn::sequential({1, 8, 8}, {dptk::nn::Flatten{}, dptk::nn::Linear{count}}), 1);
            dptk::Trainer trainer(group, net, test::small_options(1));
            const auto& classes = trainer.add(
                dptk::ClassReport({.class_names = std::vector<std::string>(count, "a long name")}));
            trainer.add(dptk::HtmlReport(folder / "report.html", {.classes = &classes}));
            trainer.fit(samples, samples);
            const std::string page = text_of_file(folder / "report.html");
            CHECK(problem_of_tags(page) == "");
            CHECK(test::contains(page, "<span class=\"vertical\">a long name</span>") == (count == 50));
            CHECK(test::contains(page, "The most frequent errors.") == (count == 51));
            CHECK(test::contains(classes.text(), "confusion matrix") == (count == 50));
        });
    }
}

TEST_CASE("the report of a run that continues has all epochs") {
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        std::optional<dptk::TrainingState> state;
        const auto train = [&](const std::string& name, std::int64_t last_step) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(3));
            const auto& classes = trainer.add(dptk::ClassReport());
            const auto& wrong = trainer.add(dptk::Misclassified());
            trainer.add(dptk::HtmlReport(folder / name, {.classes = &classes, .misclassified = &wrong}));
            trainer.add(StopAfter(last_step));
            if (state) trainer.add(ContinueFrom(*state));
            trainer.fit(samples, samples);
            return trainer.state();
        };
        (void)train("whole.html", 0);
        for (const std::int64_t last_step : {1, 5}) {  // in the first epoch, and in the second
            state = train("continued.html", last_step);
            (void)train("continued.html", 0);
            state.reset();
            if (group.rank() != 0) continue;
            const std::string whole = without_times(text_of_file(folder / "whole.html"));
            CHECK(test::contains(whole, "<th scope=\"row\">3</th><td>9</td>"));
            CHECK(without_times(text_of_file(folder / "continued.html")) == whole);
        }
    });
}

TEST_CASE("TensorBoard gets the images of misclassified samples, and their classes if these are UTF-8") {
    const dptk::ImageDataset samples = repeated_digits();
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const std::string name : {"", "one", "\xff"}) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(1));
            std::vector<std::string> names(name.empty() ? 0 : 10, name);
            const auto& wrong = trainer.add(dptk::Misclassified({.class_names = names, .count = 12}));
            const std::filesystem::path runs =
                folder / ("runs" + std::to_string(name.size()) + name.substr(0, 1));
            trainer.add(dptk::TensorBoard(runs.string(), {.misclassified = &wrong}));
            trainer.fit(samples, samples);
            if (group.rank() != 0) continue;
            REQUIRE(wrong.samples().size() == 12);
            const std::string events = text_of_file(std::filesystem::directory_iterator(runs)->path());
            CHECK(test::contains(events, "misclassified/01"));
            CHECK(test::contains(events, "misclassified/12"));
            CHECK(test::contains(events, "| label | predicted |") == (name != "\xff"));
            CHECK(test::contains(events, "| one | one |") == (name == "one"));
        }
    });
}

TEST_CASE("charts leave out what is not finite") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::string chart = dptk::detail::to_html({.title = "A & B",
                                                     .unit = "nats",
                                                     .epochs = {1, 2, 3, 4},
                                                     .lines = {{"test", "test", {1, 0.5, nan, 0.25}}}});
    CHECK(problem_of_tags("<!DOCTYPE html>" + chart) == "");
    CHECK(test::contains(chart, "A &amp; B by epoch"));
    CHECK(std::ranges::count(chart, 'M') == 2);  // two parts
    CHECK(!test::contains(chart, "nan"));
    for (const std::vector<double>& values :
         {std::vector<double>{0, 0}, {1, 1}, {-1, -1}, {1e9, 1e9 + 1e-7}, {nan, nan}, {1e308, -1e308}}) {
        const std::string flat = dptk::detail::to_html({.title = "",
                                                        .unit = "",
                                                        .epochs = {1, 2},
                                                        .lines = {{"", "", values}},
                                                        .begins_at_zero = false});
        CHECK(problem_of_tags("<!DOCTYPE html>" + flat) == "");
        CHECK(!test::contains(flat, "–"));
    }
    CHECK(dptk::detail::axis_ticks(0, 2.3, 5, false) == std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5});
    CHECK(dptk::detail::axis_ticks(1, 3, 8, true) == std::vector<double>{1, 2, 3});
    CHECK(dptk::detail::grouped(1234567.4) == "1,234,567");
    CHECK(dptk::detail::grouped(-123) == "-123");
    CHECK(dptk::detail::base64("Ma") == "TWE=");
    CHECK(dptk::detail::base64("Man\xff") == "TWFu/w==");
    CHECK(dptk::detail::html_escaped("a\x01\x7f\xc3\xa4") == "a??\xc3\xa4");
}

TEST_CASE("inputs become images if they have 1 or 3 channels") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const dptk::Image color =
        dptk::detail::sample_image(std::vector<float>{-1, 0, 1, nan, -0.5F, 0.5F}, {3, 1, 2});
    CHECK(color == dptk::Image{2, 1, 3, {0, 255, 64, 128, 0, 191}});
    CHECK(dptk::detail::sample_image(std::vector<float>{3, 3}, {1, 2, 1}).pixels ==
          std::vector<std::uint8_t>{0, 0});
    for (const dptk::Shape& shape : {dptk::Shape{4}, {2, 1, 2}, {4, 1, 1}})
        CHECK(dptk::detail::sample_image(std::vector<float>(4), shape).pixels.empty());
}
