#include "options.hpp"

#include <CLI/CLI.hpp>
#include <dptk/comm/registry.hpp>
#include <dptk/core/detail/parse.hpp>
#include <dptk/core/detail/suggestion.hpp>
#include <dptk/core/error.hpp>
#include <dptk/nn/models.hpp>

#include <algorithm>
#include <clocale>
#include <locale>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config.hpp"

namespace {

constexpr int usage_error = 2;  // the exit status

#ifdef DPTK_WITH_CUDNN
constexpr bool is_built_with_cuda = true;
#else
constexpr bool is_built_with_cuda = false;
#endif

#ifdef DPTK_WITH_IMAGES
constexpr bool is_built_with_images = true;
#else
constexpr bool is_built_with_images = false;
#endif

#ifdef DPTK_WITH_ONEDNN
constexpr bool is_built_with_onednn = true;
#else
constexpr bool is_built_with_onednn = false;
#endif

#ifdef DPTK_WITH_WEIGHTS
constexpr bool is_built_with_weights = true;
#else
constexpr bool is_built_with_weights = false;
#endif

/// While it lives, CLI11 reads and writes numbers with a decimal point, whatever the program's locale is.
class PlainNumbers {
  public:
    PlainNumbers() : streams_(std::locale::global(std::locale::classic())) { std::setlocale(LC_ALL, "C"); }
    ~PlainNumbers() {
        std::locale::global(streams_);
        std::setlocale(LC_ALL, program_.c_str());
    }
    PlainNumbers(const PlainNumbers&) = delete;
    PlainNumbers& operator=(const PlainNumbers&) = delete;

  private:
    std::string program_ = std::setlocale(LC_ALL, nullptr);
    std::locale streams_;
};

/// The options with what set them, for checks of combinations, which CLI11 does not do.
class Settings {
  public:
    /// `given` are the settings of the file and the environment. The app has parsed the command line.
    Settings(const CLI::App& app, const std::vector<Setting>& given) : app_(app) {
        for (const Setting& setting : given) settings_[setting.option] = setting;
        for (const std::string& name : option_names(app)) {
            const std::string dashed = "--" + name;
            if (app.count(dashed) > 0)
                settings_[name] = {name, app[dashed]->reduced_results(), Origin::command_line, dashed};
        }
    }

    /// Whether the option is set. In a file, its default, as to_yaml() writes it, sets nothing.
    [[nodiscard]] bool has(const std::string& name) const {
        const auto found = settings_.find(name);
        if (found == settings_.end()) return false;
        const bool is_default =
            found->second.values == std::vector<std::string>{default_of(*app_.get_option("--" + name))};
        return !is_default || found->second.origin != Origin::file;
    }

    /// Throws an error that names where the option is set.
    [[noreturn]] void fail(const std::string& name, const std::string& text) const {
        const auto found = settings_.find(name);
        if (found == settings_.end() || found->second.origin == Origin::command_line)
            throw CLI::ValidationError("--" + name, text);
        throw dptk::ArgumentError(found->second.where + ": " + text);
    }

    /// Requires that `condition`, which depends on the option `other`, is true if the option `name` is set.
    /// If `other` overrides what the file or the environment says, `name` is obsolete instead.
    void require(const std::string& name, const std::string& other, bool condition, const std::string& text) {
        if (condition || !has(name)) return;
        if (origin(other) <= origin(name)) fail(name, text);
        obsolete_.insert(name);
    }

    /// Whether what sets the option `name` overrides what sets `other`.
    [[nodiscard]] bool overrides(const std::string& name, const std::string& other) const {
        return origin(name) > origin(other);
    }

    void replace(const std::string& name, std::string value) {
        settings_.at(name).values = {std::move(value)};
    }

    /// Returns the options that have no meaning together with the ones that override others.
    [[nodiscard]] const std::set<std::string>& obsolete() const { return obsolete_; }

    [[nodiscard]] std::string as_yaml() const { return to_yaml(app_, settings_); }

  private:
    [[nodiscard]] Origin origin(const std::string& name) const {
        const auto found = settings_.find(name);
        return found == settings_.end() ? Origin::default_value : found->second.origin;
    }

    const CLI::App& app_;
    std::map<std::string, Setting> settings_;
    std::set<std::string> obsolete_;
};

void check_dataset(Settings& settings, const Options& options) {
    const bool is_images = options.dataset == "images";
    if (is_images && !is_built_with_images)
        settings.fail(
            "dataset",
            "this program was built without libjpeg-turbo and libpng; install libjpeg62-turbo-dev and "
            "libpng-dev (Debian), or libjpeg-turbo-devel and libpng-devel (Fedora), and build it again");
    settings.require("image-size", "dataset", is_images, "needs --dataset images");
    for (const char* name : {"augment", "skip-damaged", "keep-hidden", "test-data"})
        settings.require(name, "dataset", is_images, "needs --dataset images");
    settings.require("test-data", "data", !options.data.empty(), "needs --data");
    if (!is_images && options.data.size() > 1) settings.fail("data", "only --dataset images has several");
}

void check_files(Settings& settings, const Options& options) {
    for (const char* name : {"resume", "save-every", "keep-last"})
        settings.require(name, "work-dir", !options.work_dir.empty(), "needs --work-dir");
    if (!is_built_with_weights && !(options.work_dir.empty() && options.weights.empty()))
        settings.fail(options.weights.empty() ? "work-dir" : "weights",
                      "this program was built without nlohmann-json; install "
                      "nlohmann-json3-dev (Debian) or json-devel (Fedora), and build it again");
    if (options.weights.ends_with(".pth") || options.weights.ends_with(".pt"))
        settings.fail("weights",
                      "expected a safetensors file: scripts/convert-weights converts " + options.weights);
    if (options.evaluate && options.weights.empty() && (options.work_dir.empty() || options.resume == "none"))
        settings.fail("evaluate", "needs --weights or a checkpoint in --work-dir");
    settings.require("milestones", "scheduler", options.scheduler == "multi-step",
                     "needs --scheduler multi-step");
    settings.require("gamma", "scheduler", options.scheduler == "multi-step", "needs --scheduler multi-step");
    settings.require("lrf", "scheduler", options.scheduler == "cosine" || options.scheduler == "linear",
                     "needs --scheduler cosine or linear");
    if (options.scheduler == "multi-step" && options.milestones.empty())
        settings.fail("scheduler", "multi-step needs --milestones");
    for (const char* name : {"accumulate", "freeze", "lr-factor"})
        settings.require(name, "device", options.device == "cpu", "needs --device cpu");
    settings.require("label-smoothing", "device", options.label_smoothing <= 0 || options.device == "cpu",
                     "needs --device cpu");
    settings.require("ema", "device", options.ema <= 0 || options.device == "cpu", "needs --device cpu");
}

void check_pruning(Settings& settings, Options& options) {
    for (const char* name : {"prune", "sparsity", "prune-epochs", "slim-penalty"})
        settings.require(name, "evaluate", !options.evaluate, "cannot be combined with --evaluate");
    for (const char* name : {"sparsity", "prune-epochs"})
        settings.require(name, "prune", prunes(options), "needs --prune");
    settings.require("slim-penalty", "prune", options.prune == "slim", "needs --prune slim");
    if (!prunes(options)) return;
    if (options.prune_epochs.value_or(0) > options.epochs && settings.overrides("epochs", "prune-epochs")) {
        options.prune_epochs = options.epochs;
        settings.replace("prune-epochs", std::to_string(options.epochs));
    }
    if (options.prune_epochs.value_or(0) > options.epochs)
        settings.fail("prune-epochs", "expected at most --epochs " + std::to_string(options.epochs) +
                                          ", got '" + std::to_string(*options.prune_epochs) + "'");
    if (options.prune == "slim" && options.device != "cpu") settings.fail("prune", "slim needs --device cpu");
    // Averages have values that are not pruned, and pruning costs accuracy.
    settings.require("ema", "prune", options.ema <= 0, "cannot be combined with --prune");
    settings.require("patience", "prune", options.patience == 0, "cannot be combined with --prune");
}

void check_device(Settings& settings, const Options& options) {
    const bool is_cuda = options.device == "cuda";
    if (is_cuda && !is_built_with_cuda)
        settings.fail("device",
                      "this program was built without the trainer on a GPU, which needs nvcc and cuDNN 9");
    settings.require("reproducible", "device", !is_cuda || options.reproducible_shards == 0,
                     "needs --device cpu");
    if (is_cuda && options.data_on_device && options.dataset == "images")
        settings.fail("data-on-device", "--dataset images cannot be kept on the device");
    if (!is_cuda && options.precision == "bf16" && !is_built_with_onednn)
        settings.fail("precision",
                      "this program was built without oneDNN; install libdnnl-dev (Debian), or onednn-devel "
                      "(Fedora), and build it again");
    settings.require("shard-optimizer", "device", !is_cuda || !options.shard_optimizer, "needs --device cpu");
    const auto exclude_shards = [&](const char* name, bool is_used) {
        settings.require(name, "shard-optimizer", !is_used || !options.shard_optimizer,
                         "cannot be combined with --shard-optimizer");
    };
    exclude_shards("reproducible", options.reproducible_shards > 0);
    exclude_shards("comm-hook", options.comm_hook != "none");
    exclude_shards("prune", prunes(options));
    for (const char* name : {"cuda-graph", "data-on-device"})
        settings.require(name, "device", is_cuda, "needs --device cuda");
}

void check_elastic(Settings& settings, const Options& options) {
    if (!options.elastic) return;
    const auto exclude = [&](const char* name, bool is_used) {
        settings.require(name, "elastic", !is_used, "cannot be combined with --elastic");
    };
    exclude("comm-hook", options.comm_hook != "none");
    exclude("prune", prunes(options));
    exclude("evaluate", options.evaluate);
    exclude("parallel", options.parallel != "ddp");
    exclude("device", options.device != "cpu");
    settings.require("scale-lr", "elastic", !options.scale_lr || options.reproducible_shards > 0,
                     "needs --reproducible with --elastic, since the number of ranks changes");
}

/// Sets the number of replicas if it has its default, and divides the batch among them.
void set_replicas(Settings& settings, Options& options, int processes) {
    const bool has_replicas = options.parallel != "ddp";
    settings.require("replicas", "parallel", has_replicas, "needs --parallel dp or both");
    if (!has_replicas) return;
    if (options.cuda_graph)
        settings.fail("cuda-graph", "needs one process per rank: start ranks with --parallel ddp");
    if (options.parallel == "dp" && processes > 1)
        settings.fail("parallel", "dp needs a single process, and the launcher started " +
                                      std::to_string(processes) +
                                      ": --parallel both has replicas in each of them");
    if (options.parallel == "both" && !options.replicas) settings.fail("parallel", "both needs --replicas");
    if (options.device == "cuda") {
        const int gpus = visible_gpus();  // if it is 0, train_on_gpu() throws
        if (!options.replicas) options.replicas = std::max(1, gpus);
        if (gpus > 0 && *options.replicas > gpus)
            settings.fail("replicas", "expected at most " + std::to_string(gpus) +
                                          ", the number of visible GPUs, got " +
                                          std::to_string(*options.replicas));
    }
    if (!options.replicas) settings.fail("parallel", "dp needs --replicas on a CPU");
    const bool has_shards = options.reproducible_shards > 0;
    const auto all_processes = static_cast<std::size_t>(processes);
    const std::size_t parts = has_shards ? options.reproducible_shards
                                         : static_cast<std::size_t>(*options.replicas) * all_processes;
    const std::size_t divisor = parts / std::gcd(parts, all_processes);
    if (options.batch_size % divisor != 0)
        settings.fail("batch-size", "expected a multiple of " + std::to_string(divisor) +
                                        ", to be divided among the " + (has_shards ? "shards" : "replicas") +
                                        ", got " + std::to_string(options.batch_size));
    options.batch_size = options.batch_size * all_processes / parts;
}

/// A check like CLI::PositiveNumber, whose own message contains the largest double.
CLI::Validator number(const char* name, bool (*accepts)(double), const char* expected) {
    return {[=](const std::string& text) {
                double value = 0;
                const bool is_accepted = CLI::detail::lexical_cast(text, value) && accepts(value);
                return is_accepted ? "" : "expected " + std::string(expected) + ", got '" + text + "'";
            },
            name};
}

CLI::Validator positive() {
    return number(
        "POSITIVE", [](double value) { return value > 0; }, "a number above 0");
}

CLI::Validator not_negative() {
    return number(
        "NONNEGATIVE", [](double value) { return value >= 0; }, "0 or a number above");
}

/// A check for whole numbers without a sign, for which CLI11 also accepts -1.
CLI::Validator whole_number() {
    return {[](const std::string& text) {
                std::uint64_t value = 0;
                return dptk::detail::parse_number(text, value)
                           ? ""
                           : "expected a whole number, 0 or above, got '" + text + "'";
            },
            ""};
}

CLI::Validator kept_checkpoints() {
    return number(
        "NUMBER", [](double value) { return value == 0 || value >= 2; },
        "2 or more, so that one remains if the newest is damaged, or 0 to keep all");
}

/// A check for PATTERN=FACTOR.
CLI::Validator pattern_and_factor() {
    return {[](const std::string& text) {
                const std::size_t equals = text.rfind('=');
                double factor = -1;
                const bool is_accepted =
                    equals != std::string::npos && equals > 0 &&
                    dptk::detail::parse_number(std::string_view(text).substr(equals + 1), factor) &&
                    factor >= 0;
                return is_accepted ? "" : "expected PATTERN=FACTOR, such as fc.*=10, got '" + text + "'";
            },
            "PATTERN=FACTOR"};
}

/// A transformation that accepts a word in upper and lower case.
CLI::Validator one_of(const std::vector<std::string>& words) {
    return {[=](std::string& text) -> std::string {
                const std::string word = CLI::detail::to_lower(text);
                if (std::find(words.begin(), words.end(), word) == words.end())
                    return "expected one of " + CLI::detail::join(words, ", ") + ", got '" + text + "'" +
                           dptk::detail::suggestion(word, words);
                text = word;
                return "";
            },
            "{" + CLI::detail::join(words, ",") + "}"};
}

CLI::Validator fraction() {
    return number(
        "FRACTION", [](double value) { return value > 0 && value < 1; }, "a number above 0 and below 1");
}

/// Help whose lines have at most 100 columns.
class NarrowHelp : public CLI::Formatter {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        std::istringstream help(CLI::Formatter::make_help(app, std::move(name), mode));
        std::string text;
        for (std::string line; std::getline(help, line);) {
            if (line.empty() && text.ends_with("\n\n")) continue;
            const std::string indent(line.starts_with(" ") ? get_column_width() : 0, ' ');
            while (line.size() > width) {
                const std::size_t end = line.find_last_of(" ,", width - 1);
                if (end == std::string::npos || line.find_first_not_of(' ') > end) break;
                text += line.substr(0, line[end] == ' ' ? end : end + 1) + "\n";
                line = indent + line.substr(end + 1);
            }
            text += line + "\n";
        }
        return text;
    }

  protected:
    /// Returns the choices of an option, or a short name of its type, and its default.
    std::string make_option_opts(const CLI::Option* option) const override {
        if (option->get_type_size() == 0) return "";  // a flag
        std::string type = option->get_type_name();   // such as TEXT:{a,b} or INT:POSITIVE
        const std::size_t colon = type.find(':');
        const bool has_choices = type.find(":{") == colon;
        if (colon != std::string::npos)
            type = has_choices || colon == 0 ? type.substr(colon + 1) : type.substr(0, colon);
        if (type == "INT" || type == "UINT") type = "N";
        if (type == "FLOAT") type = "X";
        std::string text = " " + type;
        const std::string value = option->get_default_str();
        if (!value.empty() && value != "[]") text += "=" + value;
        return option->get_expected_max() > 1 ? text + " ..." : text;
    }

  private:
    static constexpr std::size_t width = 100;
};

/// Throws the error about unknown options, with the name that is most similar to the first one.
[[noreturn]] void fail_unknown(const CLI::App& app, const CLI::ExtrasError& error) {
    std::string text = error.what();
    for (const std::string& word : app.remaining()) {
        if (!word.starts_with("--")) continue;
        std::vector<std::string> names = option_names(app);
        for (std::string& name : names) name.insert(0, "--");
        text += dptk::detail::suggestion(word.substr(0, word.find('=')), names);
        break;
    }
    throw CLI::ValidationError(text);
}

/// Throws the error about the option whose value does not have its type.
void fail_conversion(CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->count() == 0) continue;
        Setting setting{option->get_single_name(), option->reduced_results(), Origin::command_line,
                        option->get_name()};
        try {
            apply(app, setting);
        } catch (const dptk::ArgumentError& error) {
            throw CLI::ValidationError(error.what());
        }
    }
}

void parse_command_line(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ExtrasError& error) {
        fail_unknown(app, error);
    } catch (const CLI::ConversionError&) {
        fail_conversion(app);
        throw;
    } catch (const CLI::ArgumentMismatch& error) {  // such as "--epochs: 1 required INT:POSITIVE missing"
        const std::string text = error.what();
        throw CLI::ValidationError(text.substr(0, text.find(':')), "expected a value");
    }
}

/// Refuses an option in the place of a value, which was forgotten. CLI11 would use it as the value.
void refuse_options_as_values(CLI::App& app) {
    const auto check = [](const std::string& value) {
        return value.starts_with("--") ? "expected a value, got '" + value + "'" : std::string();
    };
    for (CLI::Option* option : app.get_options())
        if (option->get_items_expected_max() > 0) option->check(check);
}

/// Adds the options that are variables of `options`.
void add_options(CLI::App& app, Options& options) {
    const auto begin_group = [&](const char* name) { app.option_defaults()->group(name); };

    begin_group("Model");
    const std::vector<std::string_view> models = dptk::nn::model_names();
    app.add_option("--model", options.model, "network")
        ->transform(one_of(std::vector<std::string>(models.begin(), models.end())));
    app.add_flag("--summary", options.summary, "print the model's layers, parameters and FLOPs");
    app.add_flag("--sync-bn,--sync-batch-norm", options.sync_batch_norm,
                 "compute batch norms over the batches of all ranks");
    app.add_option("--weights", options.weights,
                   "safetensors file to begin with; tensors of another name or shape are listed and skipped")
        ->type_name("FILE");

    app.add_option(
           "--freeze", options.freeze,
           "parameters that keep their values, by name, such as 'layer1.*'; norms among them keep their "
           "statistics")
        ->type_name("PATTERN");

    begin_group("Data");
    app.add_option("--dataset", options.dataset, "format of the dataset")
        ->transform(one_of(
            {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "images", "npy", "synthetic"}));
    app.add_option(
           "--data", options.data,
           "folder of the dataset's files; --dataset digits has a default, and --dataset images may have "
           "several")
        ->type_name("DIR");
    app.add_option(
           "--test-data", options.test_data,
           "folders of --dataset images to test with (default: val in --data, or a fifth of its images)")
        ->type_name("DIR");
    app.add_option("--image-size", options.image_size, "width and height to which --dataset images crops")
        ->check(positive());
    app.add_option(
           "--augment", options.augment,
           "crop-flip: train with random parts of --dataset images, some of them mirrored; none: with the "
           "whole images, such as images of letters or digits")
        ->transform(one_of({"crop-flip", "none"}));
    app.add_flag("--skip-damaged", options.skip_damaged,
                 "use the next image of --dataset images in the place of a damaged one, and name it");
    app.add_flag("--keep-hidden", options.keep_hidden,
                 "use folders and files of --dataset images whose names begin with a dot, too");
    app.add_option("--workers", options.workers,
                   "threads per rank that read samples; default: 0, or for --dataset images, up to 8")
        ->check(number(
            "NUMBER", [](double value) { return value >= 0 && value <= 1024; }, "a number from 0 to 1024"));

    begin_group("Training");
    app.add_option("--epochs", options.epochs, "passes over the training data")->check(positive());
    app.add_option(
           "--batch-size", options.batch_size,
           "samples of each step per rank, or per shard; with --parallel dp or both, of all replicas of a "
           "process together")
        ->check(positive());
    app.add_option("--accumulate", options.accumulate,
                   "batches of each step per rank, one after the other, as if they were one large batch")
        ->check(positive());
    app.add_option("--optimizer", options.optimizer, "how gradients change the parameters")
        ->transform(one_of({"sgd", "adam", "adamw"}));
    app.add_option("--lr", options.lr, "learning rate")->check(not_negative());
    app.add_option("--label-smoothing", options.label_smoothing,
                   "part of each target that is spread evenly over all classes, such as 0.1")
        ->check(number(
            "FRACTION", [](double value) { return value >= 0 && value < 1; }, "a number from 0 to below 1"));
    app.add_flag("--scale-lr", options.scale_lr,
                 "multiply the learning rate by the number of ranks, or of shards");
    app.add_option("--lr-factor", options.lr_factors,
                   "factor of the learning rate of some parameters, such as 'fc.*=10'")
        ->type_name("")
        ->check(pattern_and_factor());
    app.add_option("--momentum", options.momentum, "of sgd")->check(not_negative());
    app.add_option("--weight-decay", options.weight_decay, "of all parameters")->check(not_negative());
    app.add_option("--scheduler", options.scheduler, "how the learning rate falls")
        ->transform(one_of({"constant", "cosine", "linear", "multi-step"}));
    app.add_option("--milestones", options.milestones,
                   "epochs after which --scheduler multi-step multiplies the learning rate by --gamma")
        ->check(not_negative());
    app.add_option("--gamma", options.gamma, "of multi-step: factor of the learning rate at each milestone")
        ->check(not_negative());
    app.add_option("--lrf", options.lrf,
                   "of cosine and linear: the learning rate at the end, as a fraction of --lr")
        ->check(not_negative());
    app.add_option("--warmup", options.warmup, "epochs in which the learning rate rises")
        ->check(not_negative());
    app.add_option("--ema", options.ema,
                   "evaluate averages of the parameters with this decay, such as 0.999; 0: off")
        ->check(number(
            "FRACTION", [](double value) { return value >= 0 && value <= 1; }, "a number from 0 to 1"));
    app.add_option("--patience", options.patience,
                   "end after this number of epochs without a better accuracy; 0: never")
        ->check(not_negative());
    app.add_flag("--evaluate", options.evaluate, "only evaluate, the weights or the newest checkpoint");
    app.add_option("--seed", options.seed, "seed of the initial parameters and of the order of samples")
        ->check(whole_number());

    begin_group("Pruning");
    app.add_option(
           "--prune", options.prune,
           "train, then remove the filters of least importance, by this measure, and train the others")
        ->transform(one_of({"none", "l1", "l2", "fpgm", "slim"}));
    app.add_option("--sparsity", options.sparsity, "fraction of the filters to remove")->check(fraction());
    app.add_option("--prune-epochs", options.prune_epochs,
                   "the last of --epochs, after pruning; default: half of them")
        ->check(positive());
    app.add_option(
           "--slim-penalty", options.slim_penalty,
           "of --prune slim: factor of the sum of |weight| of batch norms in the loss, before pruning")
        ->check(not_negative());

    begin_group("Files and output");
    app.add_option("--work-dir", options.work_dir,
                   "folder for checkpoints, reports, logs, TensorBoard's files and config.yaml")
        ->type_name("DIR");
    app.add_option("--resume", options.resume,
                   "auto: continue from the newest checkpoint in --work-dir; none: start from the beginning, "
                   "in a folder without checkpoints; or a checkpoint, such as RUN/best")
        ->type_name("auto|none|DIR");
    app.add_option("--grace", options.grace,
                   "seconds from a signal until the program ends, whatever it does; 0: no limit")
        ->check(not_negative());
    app.add_option("--save-every", options.save_every, "steps between checkpoints within epochs; 0: none")
        ->check(not_negative());
    app.add_option("--keep-last", options.keep_last,
                   "number of newest checkpoints that are kept, 2 or more; 0: all")
        ->check(kept_checkpoints());
    app.add_option("--progress", options.progress, "how to show the progress")
        ->transform(one_of({"auto", "bar", "lines"}));

    begin_group("Ranks and devices");
    app.add_option("--parallel", options.parallel,
                   "ddp: ranks are processes that a launcher starts; dp: ranks are threads of one process, "
                   "which needs no launcher; both: ranks are threads of each process")
        ->transform(one_of({"ddp", "dp", "both"}));
    app.add_option("--replicas", options.replicas,
                   "of --parallel dp and both: number of ranks in each process; default of dp with --device "
                   "cuda: one per visible GPU")
        ->check(positive());
    app.add_option("--device", options.device, "what computes: the host's CPU, or one GPU per rank")
        ->transform(one_of({"cpu", "cuda"}));
    app.add_option(
           "--precision", options.precision,
           "precision of products and convolutions; tf32 is fp32 on a CPU, and bf16 needs AVX512_BF16")
        ->transform(one_of({"fp32", "tf32", "bf16"}));
    app.add_flag("--cuda-graph", options.cuda_graph, "launch each step as one CUDA graph");
    app.add_flag("--data-on-device", options.data_on_device, "keep the whole dataset in the GPU's memory");
    app.add_option("--threads", options.threads, "compute threads per rank; 0: cores / ranks on this host")
        ->check(not_negative());
    app.add_option("--overlap", options.overlap,
                   "send gradients while others are computed; auto: if each rank has a spare core or a GPU")
        ->transform(one_of({"auto", "on", "off"}));
    app.add_option("--comm-hook", options.comm_hook, "how gradients are compressed before they are sent")
        ->transform(one_of({"none", "fp16", "bf16", "powersgd"}));
    app.add_flag("--shard-optimizer", options.shard_optimizer,
                 "each rank keeps only its part of the optimizer's state (ZeRO-1), in less memory");
    app.add_option("--reproducible", options.reproducible_shards,
                   "number of shards of each step, for the same bits at every number of ranks; 0: off")
        ->type_name("SHARDS")
        ->check(whole_number());
    app.add_flag("--elastic", options.elastic,
                 "continue when ranks are lost or join; start it with dptk-run --elastic");
    app.add_flag("--verify", options.verify,
                 "after each epoch, check that all ranks have the same parameters");
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv, int processes,
                            const std::function<ConfigInputs(const std::string& path)>& read_inputs) {
    const PlainNumbers plain_numbers;
    Options options;
    std::string config;
    bool print_config = false;
    CLI::App app(
        "Trains an image classifier with one replica per rank. Start it alone, or with mpirun -np N.");
    app.footer(
        "Each option can also be set by a variable, such as DPTK_TRAIN_BATCH_SIZE=64, or in the file of "
        "--config, "
        "as batch_size: 64. The command line overrides variables, and these override the file.");
    app.formatter(std::make_shared<NarrowHelp>());
    app.option_defaults()->always_capture_default()->group("Configuration");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.set_help_flag("-h,--help", "print this text and exit")->group("Configuration");
    app.add_option("-c,--config", config, "YAML file with options")->type_name("FILE");
    app.add_flag("--print-config", print_config, "print the options in force as YAML, and exit");
    add_options(app, options);
    refuse_options_as_values(app);
    ParsedOptions parsed;
    try {
        parse_command_line(app, argc, argv);
        const ConfigInputs inputs = read_inputs(config);
        ConfigFile file = parse_config_file(app, inputs);
        std::vector<Setting> settings = std::move(file.settings);
        for (Setting& setting : environment_settings(app, inputs)) settings.push_back(std::move(setting));
        const auto set_all = [&] {
            options = {};
            for (Setting& setting : settings) apply(app, setting);
            parse_command_line(app, argc, argv);  // overrides these settings
            Settings in_force(app, settings);
            check_dataset(in_force, options);
            check_device(in_force, options);
            check_elastic(in_force, options);
            check_pruning(in_force, options);
            check_files(in_force, options);
            set_replicas(in_force, options, processes);
            options.as_yaml = in_force.as_yaml();
            return in_force.obsolete();
        };
        const auto obsolete = set_all();
        std::erase_if(settings, [&](const Setting& setting) { return obsolete.contains(setting.option); });
        if (!obsolete.empty()) (void)set_all();
        parsed.warning = std::move(file.warning);
        if (print_config)
            parsed.text = options.as_yaml;
        else
            parsed.options = options;
    } catch (const CLI::ParseError& error) {
        std::ostringstream text;
        parsed.exit_status = app.exit(error, text, text) == 0 ? 0 : usage_error;
        parsed.text = text.str();
    } catch (const dptk::ArgumentError& error) {
        parsed.exit_status = usage_error;
        parsed.text = std::string("train: ") + error.what() + "\n";
    }
    return parsed;
}
