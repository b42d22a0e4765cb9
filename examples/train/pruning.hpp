// Pruning in the training example: the network becomes smaller within the run, and what that costs and gains
// is measured.
#pragma once

#include <dptk/train.hpp>
#include <dptk/train/callbacks/prune_filters.hpp>
#ifdef DPTK_WITH_WEIGHTS
#include <dptk/weights/load_weights.hpp>
#include <dptk/weights/make_model_for.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "data.hpp"
#include "options.hpp"
#include "text.hpp"

[[nodiscard]] inline dptk::nn::PruningOptions pruning_options(const Options& options) {
    using dptk::nn::FilterScore;
    const FilterScore score = options.prune == "slim"   ? FilterScore::slim
                              : options.prune == "fpgm" ? FilterScore::fpgm
                              : options.prune == "l2"   ? FilterScore::l2
                                                        : FilterScore::l1;
    return {.score = score, .ratio = options.sparsity};
}

/// Prints the accuracy of an evaluation, unless a signal has ended it early.
inline void print_accuracy(dptk::ProgressPrinter& printer, const char* when, const dptk::EpochResult& result,
                           std::size_t samples) {
    if (result.samples == samples) printer.line(format("accuracy %s: %.4f", when, result.accuracy));
}

/// At the beginning of the epoch in which the network is pruned, prints the accuracy of the epoch before, if
/// there is one, and the accuracy with masks. Must be added after PruneFilters.
template <class Trainer, class Dataset>
class PrintMaskedAccuracy : public dptk::Callback {
  public:
    PrintMaskedAccuracy(Trainer& trainer, const Dataset& test, int epoch, dptk::ProgressPrinter& printer)
        : trainer_(trainer), test_(test), epoch_(epoch), printer_(printer) {}

    void epoch_begin(dptk::TrainingRun& run) override {
        const dptk::TrainingStatus& status = run.status();
        if (status.epoch != epoch_ || status.batch > 0) return;
        if (epoch_ > 0) printer_.line(format("accuracy before pruning: %.4f", status.test.accuracy));
        print_accuracy(printer_, "with masks", trainer_.evaluate(test_), test_.size());
    }

  private:
    Trainer& trainer_;
    const Dataset& test_;
    int epoch_;
    dptk::ProgressPrinter& printer_;
};

/// Returns the first samples of a dataset.
template <class Dataset>
[[nodiscard]] Dataset first_samples(const Dataset& dataset, std::size_t count) {
    std::vector<std::size_t> indices(std::min<std::size_t>(count, dataset.size()));
    std::iota(indices.begin(), indices.end(), std::size_t{0});
    return dataset.subset(indices);
}

/// Returns the largest difference of the outputs of two networks in host memory, over some test images.
/// Leaves them in nn::Mode::evaluate.
template <class Net, class Dataset>
[[nodiscard]] double largest_difference(Net& a, Net& b, const Data<Dataset>& data) {
    using Collation = dptk::detail::LabeledCollation<dptk::detail::LoadedSample<Dataset>, float>;
    const Dataset test = first_samples(data.test, 64);
    const dptk::DistributedSampler sampler(test.size(), 1, 0, {.shuffle = false});
    const dptk::BatchSampler batches(sampler, std::max<std::size_t>(test.size(), 1));
    dptk::DataLoaderOptions options;
    options.transform = data.test_transform;
    dptk::DataLoader loader(test, batches, options,
                            Collation(dptk::detail::sample_format(a, data.pixel_scale)));
    a.set_mode(dptk::nn::Mode::evaluate);
    b.set_mode(dptk::nn::Mode::evaluate);
    double largest = 0;
    for (const auto& batch : loader) {
        const auto before = a.forward(batch.values).values(), after = b.forward(batch.values).values();
        for (std::size_t i = 0; i < before.size(); ++i)
            largest = std::max(largest, std::abs(static_cast<double>(before[i]) - after[i]));
    }
    return largest;
}

/// Seconds of a step.
struct StepTimes {
    double training;
    double evaluation;
};

/// Measures networks of two graphs, which take turns, and returns the median for each. Collective.
template <class MakeBackend, class Dataset>
[[nodiscard]] std::array<StepTimes, 2> measure_steps(dptk::ProcessGroup& group,
                                                     const std::array<dptk::nn::Graph, 2>& graphs,
                                                     dptk::TrainerOptions options, const Dataset& dataset,
                                                     MakeBackend make_backend) {
    using Backend = decltype(make_backend());
    constexpr std::size_t steps_per_round = 2;
    options.sgd.lr = options.adam.lr = 0;  // the values must not grow
    const std::size_t samples_per_step =
        options.batch_size *
        std::max<std::size_t>(options.reproducible_shards, static_cast<std::size_t>(group.size()));
    const Dataset few = first_samples(dataset, steps_per_round * samples_per_step);
    const double steps = std::ceil(static_cast<double>(few.size()) / static_cast<double>(samples_per_step));
    dptk::nn::Network<Backend> before(graphs[0], 1, make_backend()), after(graphs[1], 1, make_backend());
    dptk::Trainer<dptk::nn::Network<Backend>> trainers[] = {{group, before, options},
                                                            {group, after, options}};
    std::array<std::array<std::vector<double>, 2>, 2> seconds;  // by graph; training and evaluation
    std::size_t rounds = 1;
    for (std::size_t round = 0; round <= rounds; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < 2; ++i) {
            const double training = trainers[i].train_epoch(few, 0).seconds / steps;
            const double evaluation = trainers[i].evaluate(few).seconds / steps;
            if (round == 0) continue;  // allocates memory, and chooses kernels
            seconds[i][0].push_back(training);
            seconds[i][1].push_back(evaluation);
        }
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        // 5 rounds, or up to 25 if these take less than a second.
        if (round == 0)
            rounds = group.all_reduce_value(
                std::clamp<std::size_t>(static_cast<std::size_t>(1 / taken.count()), 5, 25),
                dptk::ReduceOp::max);
    }
    const auto median = [](std::vector<double>& values) {
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    };
    return {StepTimes{median(seconds[0][0]), median(seconds[0][1])},
            StepTimes{median(seconds[1][0]), median(seconds[1][1])}};
}

#ifdef DPTK_WITH_WEIGHTS
/// The key of a pruned network's model in the metadata of its weights.
constexpr const char* pruned_model_key = "pruned_model";

/// Returns the path of the smaller network in the work folder.
[[nodiscard]] inline std::filesystem::path pruned_file(const Options& options) {
    return std::filesystem::path(options.work_dir) / "pruned" / "model.safetensors";
}

/// Returns the options, with the smaller network as weights if the run in the work folder, which is only
/// evaluated, was pruned.
[[nodiscard]] inline Options with_pruned_weights(Options options) {
    const bool is_asked_for = options.weights.empty() && options.resume == "auto";
    if (options.evaluate && is_asked_for && std::filesystem::exists(pruned_file(options))) {
        options.weights = pruned_file(options).string();
        options.resume = "none";
    }
    return options;
}

/// Returns the model, with the stem that the weights to begin with have.
[[nodiscard]] inline dptk::nn::Graph model_for_weights(const Options& options,
                                                       const dptk::nn::ModelOptions& model) {
    if (options.weights.empty()) return dptk::nn::make_model(options.model, model);
    return dptk::make_model_for(dptk::SafetensorsFile(options.weights), options.model, model);
}

/// Returns the graph with as many filters as a file of weights has, if these are of a pruned network. Throws
/// ArgumentError if it was pruned from another model.
[[nodiscard]] inline dptk::nn::Graph pruned_as_in_file(const Options& options, dptk::nn::Graph graph) {
    if (options.weights.empty()) return graph;
    const dptk::SafetensorsFile file(options.weights);
    const auto model = file.metadata().find(pruned_model_key);
    if (model == file.metadata().end()) return graph;
    if (model->second != options.model)
        throw dptk::ArgumentError(options.weights + ": expected the weights of " + options.model +
                                  ", found those of a pruned " + model->second);
    return dptk::nn::with_filters(graph, [&](const std::string& conv) {
        const dptk::SafetensorsEntry* const weight = file.find(conv + ".weight");
        if (weight == nullptr || weight->shape.empty())
            throw dptk::ArgumentError(options.weights + ": expected the weights of " + conv + ", found none");
        return weight->shape[0];
    });
}

/// Writes the network to the folder `pruned` in the work folder. Returns the file.
template <class Net>
[[nodiscard]] std::string save_pruned(dptk::ProcessGroup& group, const Options& options, Net& pruned) {
    const std::filesystem::path file = pruned_file(options);
    dptk::on_all_or_none(group, [&] {
        if (group.rank() != 0) return;
        std::filesystem::create_directories(file.parent_path());
        dptk::save_weights(pruned, file, {{"format", "pt"}, {pruned_model_key, options.model}});
    });
    return file.string();
}
#else
inline Options with_pruned_weights(Options options) {
    return options;
}

[[nodiscard]] inline dptk::nn::Graph model_for_weights(const Options& options,
                                                       const dptk::nn::ModelOptions& model) {
    return dptk::nn::make_model(options.model, model);
}  // parse_options refuses --weights

inline dptk::nn::Graph pruned_as_in_file(const Options&, dptk::nn::Graph graph) {
    return graph;
}  // parse_options refuses --weights

template <class Net>
std::string save_pruned(dptk::ProcessGroup&, const Options&, Net&) {
    return "";
}  // parse_options refuses --work-dir
#endif

/// Makes the smaller network, writes it, and prints what pruning has changed. `net` is the masked network,
/// whose accuracy is `accuracy`. Collective.
template <class Net, class Dataset, class MakeBackend>
void shrink(dptk::ProcessGroup& group, const Options& options, const dptk::TrainerOptions& trainer_options,
            const Data<Dataset>& data, Net& net, const dptk::nn::PruningPlan& plan, double accuracy,
            MakeBackend make_backend, dptk::ProgressPrinter& printer) {
    Net pruned(dptk::nn::prune(net.graph(), plan), options.seed, make_backend());
    dptk::nn::copy_pruned_values(net, pruned, plan);
    // Batch norms of other ranks have seen other samples: the trainer sends rank 0's statistics to all.
    dptk::Trainer trainer(group, pruned, trainer_options);
    const double accuracy_after = trainer.evaluate(data.test).accuracy;
    if (!options.work_dir.empty()) printer.line("smaller network: " + save_pruned(group, options, pruned));
    std::string report = dptk::nn::pruning_report(net.graph(), plan);
    report.pop_back();  // the newline
    printer.line(report);
    const auto [before, after] =
        measure_steps(group, {net.graph(), pruned.graph()}, trainer_options, data.train, make_backend);
    const auto print_times = [&](const char* what, double full, double small) {
        printer.line(format("%s: %.2f ms before, %.2f ms after (%.2f times as fast)", what, 1000 * full,
                            1000 * small, full / small));
    };
    print_times("training step", before.training, after.training);
    print_times("evaluation step", before.evaluation, after.evaluation);
    printer.line(format("accuracy after fine-tuning: %.4f", accuracy));
    if constexpr (std::same_as<typename Net::Tensor, dptk::Tensor<float>>) {  // in host memory
        const double difference =
            group.all_reduce_value(largest_difference(net, pruned, data), dptk::ReduceOp::max);
        printer.line(format("largest difference of the smaller network's outputs: %.1e", difference));
    }
    printer.line(format("test accuracy: %.3f", accuracy_after));
}
