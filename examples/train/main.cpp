// Trains an image classifier on dptk's own networks, with one replica per rank:
//   mpirun -np 2 train --model convnet --dataset digits
//   dptk-run --nproc-per-node 2 -- train --device cuda --precision bf16 --cuda-graph
//   train --parallel dp --replicas 2 --batch-size 64
#include <dptk/comm/tcp.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/detail/parse.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>
#include <dptk/nn/precision.hpp>
#include <dptk/train.hpp>
#ifdef DPTK_WITH_WEIGHTS
#include <dptk/data/detail/replacement_file.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/weights/load_weights.hpp>
#endif

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "config.hpp"
#include "data.hpp"
#include "options.hpp"
#include "pruning.hpp"
#include "text.hpp"

namespace {

dptk::nn::Precision precision(const Options& options) {
    return options.precision == "fp32"   ? dptk::nn::Precision::fp32
           : options.precision == "tf32" ? dptk::nn::Precision::tf32
                                         : dptk::nn::Precision::bf16;
}

#ifdef DPTK_WITH_ONEDNN
using HostBackend = dptk::nn::Cpu;

HostBackend make_host_backend(const Options& options) {
    return HostBackend({.precision = precision(options)});
}

void set_threads(int threads) {
    dptk::nn::cpu::set_num_threads(threads);
}
#else
using HostBackend = dptk::nn::Reference<float>;

HostBackend make_host_backend(const Options&) {
    return {};
}

void set_threads(int) {}
#endif

/// Returns the number of ranks on this host that the run begins with.
int ranks_of_host(const dptk::ProcessGroup& group) {
    if (!group.is_elastic()) return group.local_size();
    return static_cast<int>(dptk::detail::ranks_on_host());  // it is alone until it joins the others
}

/// Returns this rank's share of the host's cores, but not more than the cores that this process may use.
int cores_of_rank(const dptk::ProcessGroup& group) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int share = static_cast<int>(online) / ranks_of_host(group);
    return std::max(1, std::min(share, static_cast<int>(std::thread::hardware_concurrency())));
}

dptk::ProgressStyle progress_style(const Options& options, int rank) {
    if (rank != 0) return dptk::ProgressStyle::none;
    if (options.progress == "bar") return dptk::ProgressStyle::bar;
    // Some implementations of mpirun give every rank a terminal as stdout even if mpirun's own stdout is not
    // a terminal. Then only stderr shows whether a user is watching.
    const bool terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
    return options.progress == "auto" && terminal ? dptk::ProgressStyle::bar : dptk::ProgressStyle::lines;
}

std::shared_ptr<dptk::CommHook> comm_hook(const std::string& name) {
    if (name == "fp16") return dptk::hooks::fp16_compress();
    if (name == "bf16") return dptk::hooks::bf16_compress();
    if (name == "powersgd") return dptk::hooks::powersgd({.matrix_approximation_rank = 4, .start_step = 50});
    return nullptr;
}

/// Returns the model for images of this shape, pruned like the weights to begin with. Throws ArgumentError if
/// they are too small.
dptk::nn::Graph graph_of(const Options& options, const dptk::Shape& image, std::size_t classes) {
    const bool is_small = image[1] < 64 || image[2] < 64;
    dptk::nn::Graph graph =
        model_for_weights(options, {.input = image,
                                    .classes = classes,
                                    .stem = is_small ? dptk::nn::Stem::small : dptk::nn::Stem::large});
    if (options.sync_batch_norm) graph.synchronize_batch_norms();
    return pruned_as_in_file(options, std::move(graph));
}

/// Returns the learning rate, by the linear scaling rule if the options ask for it: Goyal et al. 2017,
/// "Accurate, Large Minibatch SGD".
double learning_rate(const dptk::ProcessGroup& group, const Options& options) {
    if (!options.scale_lr) return options.lr;
    const auto ranks = static_cast<std::size_t>(group.size());
    return options.lr *
           static_cast<double>(options.reproducible_shards > 0 ? options.reproducible_shards : ranks);
}

/// Parses PATTERN=FACTOR, whose form is checked already.
std::vector<dptk::LearningRateFactor> lr_factors(const Options& options) {
    std::vector<dptk::LearningRateFactor> factors;
    for (const std::string& text : options.lr_factors) {
        const std::size_t equals = text.rfind('=');
        factors.push_back({text.substr(0, equals)});
        (void)dptk::detail::parse_number(std::string_view(text).substr(equals + 1), factors.back().factor);
    }
    return factors;
}

dptk::OptimizerKind optimizer_kind(const std::string& name) {
    if (name == "adam") return dptk::OptimizerKind::adam;
    return name == "adamw" ? dptk::OptimizerKind::adamw : dptk::OptimizerKind::sgd;
}

/// Returns the factor of the learning rate after a number of epochs, of which a step is a part.
std::function<double(double epochs, double step)> schedule(const Options& options) {
    const auto epochs = static_cast<double>(options.epochs);
    if (options.scheduler == "cosine")
        return dptk::CosineSchedule({.total = epochs, .final_factor = options.lrf, .warmup = options.warmup});
    if (options.scheduler == "linear")
        return dptk::LinearSchedule({.total = epochs, .final_factor = options.lrf, .warmup = options.warmup});
    if (options.scheduler == "multi-step") {
        std::vector<double> milestones = options.milestones;
        std::sort(milestones.begin(), milestones.end());
        return dptk::MultiStepSchedule(
            {.milestones = std::move(milestones), .gamma = options.gamma, .warmup = options.warmup});
    }
    return dptk::ConstantSchedule({.warmup = options.warmup});
}

/// After each epoch, prints a hash of the parameters, which must be equal on all ranks.
class VerifyParameters : public dptk::Callback {
  public:
    explicit VerifyParameters(dptk::ProgressPrinter& printer) : printer_(printer) {}

    void epoch_end(dptk::TrainingRun& run) override {
        const auto hash = dptk::detail::agreed_parameter_hash(run.group(), run.parameters());
        if (run.group().rank() != 0) return;
        printer_.line(format("parameters: %016llx on all %d rank(s)", static_cast<unsigned long long>(hash),
                             run.group().size()));
    }

  private:
    dptk::ProgressPrinter& printer_;
};

/// Prints what a run begins with: at once, or in an elastic job, when the first ranks have joined.
class Introduction {
  public:
    Introduction(const dptk::ProcessGroup& group, dptk::ProgressPrinter& printer)
        : is_elastic_(group.is_elastic()), printer_(printer) {}

    void line(std::string text) {
        if (!is_elastic_) return printer_.line(text);
        lines_.push_back(std::move(text));
    }

    /// Prints the lines that wait. Called on rank 0.
    void print() {
        for (const std::string& text : std::exchange(lines_, {})) printer_.line(text);
    }

  private:
    bool is_elastic_;
    dptk::ProgressPrinter& printer_;
    std::vector<std::string> lines_;
};

class PrintIntroduction : public dptk::Callback {
  public:
    explicit PrintIntroduction(Introduction& introduction) : introduction_(introduction) {}

    void train_begin(dptk::TrainingRun& run) override {
        if (run.group().rank() == 0 && run.status().changes == 0) introduction_.print();
    }

  private:
    Introduction& introduction_;
};

/// Makes the trainer prune the network. Returns its callback.
template <class Trainer, class Backend, class Dataset>
const dptk::PruneFilters<Backend>& add_pruning(dptk::ProcessGroup& group, Trainer& trainer,
                                               const Options& options, dptk::nn::Network<Backend>& net,
                                               const Dataset& test, dptk::ProgressPrinter& printer) {
    const int epoch = first_pruned_epoch(options);
    if constexpr (std::same_as<typename Backend::Tensor, dptk::Tensor<float>>) {  // in host memory
        if (options.prune == "slim") trainer.add(dptk::SlimPenalty(net.graph(), options.slim_penalty, epoch));
    }
    auto& pruning = trainer.add(dptk::on_all_or_none(
        group, [&] { return dptk::PruneFilters(net, pruning_options(options), epoch); }));
    trainer.add(PrintMaskedAccuracy(trainer, test, epoch, printer));
    return pruning;
}

/// Ends the run before its first step, when a checkpoint is loaded.
class OnlyEvaluate : public dptk::Callback {
  public:
    void train_begin(dptk::TrainingRun& run) override { run.stop("only an evaluation is wanted"); }
};

#ifdef DPTK_WITH_WEIGHTS
/// Whether the run continues from a checkpoint, if there is one.
bool uses_checkpoint(const Options& options) {
    return !options.work_dir.empty() && options.resume != "none";
}

/// Throws ArgumentError if the network would be evaluated with random values.
void require_all(const Options& options, dptk::LoadedWeights loaded) {
    // Files of old versions of PyTorch lack these counters, which an evaluation does not use.
    std::erase_if(loaded.missing,
                  [](const std::string& name) { return name.ends_with(".num_batches_tracked"); });
    if (!loaded.missing.empty() || !loaded.other_shape.empty() || !loaded.other_type.empty())
        throw dptk::ArgumentError(options.weights +
                                  ": --evaluate needs all values of the network: " + loaded.describe());
}

template <class Net>
void load_weights(dptk::ProcessGroup& group, const Options& options, Net& net, Introduction& introduction) {
    if (options.weights.empty()) return;
    const dptk::LoadedWeights loaded = dptk::on_all_or_none(group, [&] {
        dptk::LoadedWeights report =
            dptk::load_weights(net, dptk::SafetensorsFile(options.weights), dptk::Match::partial);
        if (options.evaluate && !uses_checkpoint(options)) require_all(options, report);
        return report;
    });
    introduction.line(options.weights + ": " + loaded.describe());
}

/// Writes a file into the working folder. Only rank 0 does so.
void write_file(int rank, const Options& options, const char* name, const std::string& text) {
    if (rank != 0) return;
    std::filesystem::create_directories(options.work_dir);
    dptk::detail::ReplacementFile file(std::filesystem::path(options.work_dir) / name);
    file.write(text.data(), text.size());
    file.complete();
}

/// Writes the options in force to the working folder, once it is known that the run may use the folder.
class WriteOptions : public dptk::Callback {
  public:
    explicit WriteOptions(const Options& options) : options_(options) {}

    void train_begin(dptk::TrainingRun& run) override {
        dptk::on_all_or_none(
            run.group(), [&] { write_file(run.group().rank(), options_, "config.yaml", options_.as_yaml); });
    }

  private:
    const Options& options_;
};

/// Returns names and values of the options in force, with their origins.
std::vector<std::pair<std::string, std::string>> settings_of(const Options& options) {
    std::vector<std::pair<std::string, std::string>> settings;
    std::istringstream lines(options.as_yaml);
    for (std::string line; std::getline(lines, line);) {  // batch_size: 64  # command line
        const std::size_t colon = line.find(": "), comment = line.find("  # ");
        if (colon == std::string::npos || comment == std::string::npos) continue;
        const std::string origin = line.substr(comment + 4);
        settings.emplace_back(line.substr(0, colon), line.substr(colon + 2, comment - colon - 2) +
                                                         (origin == "default" ? "" : " (" + origin + ")"));
    }
    return settings;
}

/// Whether --resume has a checkpoint.
bool names_checkpoint(const Options& options) {
    return options.resume != "auto" && options.resume != "none";
}

template <class Trainer>
void add_files(Trainer& trainer, const Options& options, const std::vector<std::string>& class_names,
               dptk::ProgressPrinter& printer) {
    if (options.evaluate && options.resume == "none") return;
    const dptk::Misclassified* misclassified = nullptr;
    if (!options.evaluate) {
        const auto& classes = trainer.add(
            dptk::ClassReport({.class_names = class_names, .path = options.work_dir + "/classes.txt"}));
        misclassified = &trainer.add(dptk::Misclassified({.class_names = class_names}));
        // Before Checkpoint, which saves the report's epochs.
        trainer.add(dptk::HtmlReport(options.work_dir + "/report.html",
                                     {.title = options.model + " on " + options.dataset,
                                      .settings = settings_of(options),
                                      .classes = &classes,
                                      .misclassified = misclassified}));
    }
    trainer.add(
        dptk::Checkpoint(options.work_dir, {.resume = options.resume == "auto",
                                            .resume_from = names_checkpoint(options) ? options.resume : "",
                                            .keep_last = options.keep_last,
                                            .every_steps = options.save_every,
                                            .saves = !options.evaluate,
                                            .in_background = true,
                                            .remark = [&](const std::string& text) { printer.line(text); }}));
    if (options.evaluate) return;
    trainer.add(WriteOptions(options));  // after Checkpoint
    trainer.add(dptk::MetricsLog(options.work_dir + "/log.csv"));
    trainer.add(dptk::TensorBoard(options.work_dir, {.misclassified = misclassified}));
}

/// Trains, and keeps what is known about a loss that is not finite.
template <class Trainer, class Dataset>
void fit(dptk::ProcessGroup& group, Trainer& trainer, const Options& options, const Data<Dataset>& data) {
    try {
        trainer.fit(data.train, data.test);
    } catch (const dptk::NonFiniteLossError& error) {
        if (!options.work_dir.empty() && !error.details().empty())
            write_file(group.rank(), options, "non_finite_loss.txt", error.details());
        throw;
    }
}
#else
template <class Net>
void load_weights(dptk::ProcessGroup&, const Options&, Net&, Introduction&) {
}  // parse_options refuses --weights

template <class Trainer>
void add_files(Trainer&, const Options&, const std::vector<std::string>&, dptk::ProgressPrinter&) {
}  // parse_options refuses --work-dir

template <class Trainer, class Dataset>
void fit(dptk::ProcessGroup&, Trainer& trainer, const Options&, const Data<Dataset>& data) {
    trainer.fit(data.train, data.test);
}
#endif

template <class Dataset>
dptk::TrainerOptions trainer_options(const dptk::ProcessGroup& group, const Options& options,
                                     const Data<Dataset>& data, bool overlap) {
    const double lr = learning_rate(group, options);
    return {.epochs = options.epochs,
            .batch_size = options.batch_size,
            .accumulate = options.accumulate,
            .optimizer = optimizer_kind(options.optimizer),
            .sgd = {.lr = lr, .momentum = options.momentum, .weight_decay = options.weight_decay},
            .adam = {.lr = lr, .weight_decay = options.weight_decay},
            .freeze = options.freeze,
            .lr_factors = lr_factors(options),
            .shard_optimizer = options.shard_optimizer,
            .label_smoothing = options.label_smoothing,
            .seed = options.seed,
            .pixel_scale = data.pixel_scale,
            .transform = data.transform,
            .evaluation_transform = data.test_transform,
            .workers = options.workers,
            .ready = overlap ? dptk::Ready::marked : dptk::Ready::at_synchronize,
            .comm_hook = comm_hook(options.comm_hook),
            .reproducible_shards = options.reproducible_shards,
            .cuda_graph = options.cuda_graph,
            .data_on_device = options.data_on_device};
}

/// Returns the file that has the lines of the output; its folder is made.
std::string log_file(const Options& options) {
    std::error_code ignored;  // add_files() reports a folder that cannot be made
    std::filesystem::create_directories(options.work_dir, ignored);
    return options.work_dir + "/train.log";
}

/// Trains a network on a backend, and prints the progress on rank 0. `computed_by` describes what computes
/// on each rank.
template <class MakeBackend, class Dataset>
void train(dptk::ProcessGroup& group, const Options& options, const Data<Dataset>& data,
           MakeBackend make_backend, bool overlap, const std::string& computed_by) {
    using Backend = decltype(make_backend());
    dptk::nn::Network<Backend> net(
        dptk::on_all_or_none(group, [&] { return graph_of(options, data.image, data.classes); }),
        options.seed, make_backend());
    dptk::Trainer trainer(group, net, trainer_options(group, options, data, overlap));

    const dptk::ProgressStyle style = progress_style(options, group.rank());
    const std::string log =
        group.rank() == 0 && !options.work_dir.empty() && !options.evaluate ? log_file(options) : "";
    dptk::ProgressPrinter printer(style, log);
    Introduction introduction(group, printer);
    if (options.summary) introduction.line(net.graph().summary());
    if (!data.remark.empty()) introduction.line(data.remark);
    const std::string ranks = group.is_elastic()
                                  ? std::string("elastic ranks")
                                  : format("%d rank(s) over %s", group.size(), group.backend().c_str());
    introduction.line(format("%s on %s: %zu training and %zu test images, %s, %s each", options.model.c_str(),
                             options.dataset.c_str(), data.train.size(), data.test.size(), ranks.c_str(),
                             computed_by.c_str()));
    load_weights(group, options, net, introduction);
    if (options.scale_lr)
        introduction.line(format("learning rate %g: --lr %g, scaled", trainer.initial_lr(), options.lr));

    trainer.add(PrintIntroduction(introduction));
    trainer.add(dptk::LearningRate(schedule(options)));
    if constexpr (std::same_as<typename Backend::Tensor, dptk::Tensor<float>>) {  // in host memory
        if (options.ema > 0) trainer.add(dptk::AverageWeights({.decay = options.ema}));
    }
    if (options.patience > 0) trainer.add(dptk::EarlyStopping({.patience = options.patience}));
    trainer.add(dptk::StopOnSignal());
    const dptk::PruneFilters<Backend>* pruning =
        prunes(options) ? &add_pruning(group, trainer, options, net, data.test, printer) : nullptr;
    if (!options.work_dir.empty()) add_files(trainer, options, data.class_names, printer);
    if (!options.evaluate) trainer.add(dptk::ProgressBar(style, log));
    if (options.verify) trainer.add(VerifyParameters(printer));
    if (options.evaluate) trainer.add(OnlyEvaluate());
    if (pruning != nullptr && first_pruned_epoch(options) == 0)
        print_accuracy(printer, "before pruning", trainer.evaluate(data.test), data.test.size());
    fit(group, trainer, options, data);
    const bool is_complete = trainer.status().stop_reason.empty();
    if (pruning != nullptr && is_complete)
        return shrink(group, options, trainer_options(group, options, data, overlap), data, net,
                      *pruning->plan(), trainer.status().test.accuracy, make_backend, printer);
    if (options.evaluate) {
        trainer.add(dptk::ProgressBar(style, log));
        if (trainer.evaluate(data.test).samples < data.test.size())
            return printer.line("evaluation ended early: " + trainer.status().stop_reason);
    }
    const dptk::EpochResult& tested = trainer.status().test;
    if (group.rank() == 0 && tested.samples > 0) printer.line(format("test accuracy: %.3f", tested.accuracy));
}

template <class Dataset>
void train_on_host(dptk::ProcessGroup& group, const Options& options, const Data<Dataset>& data) {
    const int cores = cores_of_rank(group);
    const int threads = options.threads == 0 ? cores : options.threads;
    set_threads(threads);
    const bool spare_core = group.all_reduce_value<int>(threads < cores, dptk::ReduceOp::min) != 0;
    const bool overlap = options.overlap == "on" || (options.overlap == "auto" && spare_core);
    train(
        group, options, data, [&] { return make_host_backend(options); }, overlap,
        format("%d thread(s)%s", threads, options.precision == "bf16" ? " in bf16" : ""));
}

#ifdef DPTK_WITH_CUDNN
template <class Dataset>
void train_on_gpu(dptk::ProcessGroup& group, const Options& options, const Data<Dataset>& data) {
    // Must be the first CUDA call. Fails on all ranks or on none.
    dptk::on_all_or_none(group,
                         [&] { dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank())); });
    const dptk::cuda::Stream stream;  // outlives the network
    const bool overlap = options.overlap == "on" || (options.overlap == "auto" && group.size() > 1);
    const auto make_backend = [&] {
        return dptk::nn::Cuda({.precision = precision(options), .stream = stream});
    };
    train(group, options, data, make_backend, overlap, "a GPU in " + options.precision);
}
#else
template <class Dataset>
void train_on_gpu(dptk::ProcessGroup&, const Options&, const Data<Dataset>&) {
}  // parse_options refuses --device cuda
#endif

/// Reads the dataset, on all ranks or on none, and trains.
template <class Load>
void load_and_train(dptk::ProcessGroup& group, const Options& options, Load load) {
    const auto data = dptk::on_all_or_none(group, [&] { return load(options); });
    dptk::compare_datasets(group, data.train,
                           "training datasets");  // before the network, which has its classes
    if (options.device == "cuda") {
        train_on_gpu(group, options, data);
    } else {
        train_on_host(group, options, data);
    }
}

/// Returns rank 0's inputs on all ranks: other ranks may not see the file, and launchers such as mpirun pass
/// no environment to other hosts.
ConfigInputs inputs_of_rank_0(dptk::ProcessGroup& group, const std::string& path) {
    ConfigInputs inputs;
    if (group.rank() == 0) inputs = read_inputs(path);
    for (std::string* text : {&inputs.path, &inputs.text, &inputs.file_error}) group.broadcast_object(*text);
    group.broadcast_object(inputs.environment);
    group.broadcast_object(inputs.gpus);
    inputs.processes = group.size();
    return inputs;
}

void run(dptk::ProcessGroup& group, const Options& given) {
    const Options options = with_pruned_weights(given);
#ifdef DPTK_WITH_IMAGES
    if (options.dataset == "images")
        return load_and_train(group, options,
                              [&](const Options& all) { return find_images(all, group.rank()); });
#endif
    load_and_train(group, options, load_data);
}

/// Runs the replicas of --parallel dp and both, each as a rank on a thread of its own.
void run_replicas(dptk::ProcessGroup& processes, const Options& options) {
    dptk::launch_threads(processes, *options.replicas, [&](dptk::ProcessGroup& group) {
        try {
            run(group, options);
        } catch (const dptk::Error&) {
            throw;
        } catch (const std::exception& error) {
            throw dptk::Error("rank " + std::to_string(group.rank()) + ": " + error.what());
        }
    });
}

/// Whether --elastic is given, which must be known before the other options, since the ranks compare these.
bool wants_elastic(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc,
                       [](const char* argument) { return std::string_view(argument) == "--elastic"; });
}

}  // namespace

int main(int argc, char** argv) {
    int rank = 0;
    try {
        const dptk::StopSignals signals;
        dptk::ProcessGroup group = dptk::init_process_group({.elastic = wants_elastic(argc, argv)});
        rank = group.rank();
        const ParsedOptions parsed = parse_options(
            argc, argv, group.size(), [&](const std::string& path) { return inputs_of_rank_0(group, path); });
        if (rank == 0 && !parsed.warning.empty())
            std::fprintf(stderr, "train: warning: %s\n", parsed.warning.c_str());
        if (parsed.options) {
            if (parsed.options->elastic && !wants_elastic(argc, argv))
                throw dptk::ArgumentError("elastic: expected --elastic on the command line");
            dptk::StopSignals::set_grace_time(std::chrono::seconds(parsed.options->grace));
            if (parsed.options->parallel == "ddp")
                run(group, *parsed.options);
            else
                run_replicas(group, *parsed.options);
        } else if (rank == 0) {
            std::fputs(parsed.text.c_str(), parsed.exit_status == 0 ? stdout : stderr);
        }
        return parsed.exit_status;
    } catch (const dptk::Error& error) {
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "train: %s\n", error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "train: rank %d: %s\n", rank, error.what());
    }
    return 1;
}
