// The options of the training example, which its command line, the environment and a YAML file set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

struct ConfigInputs;

struct Options {
    std::string model = "convnet";
    bool summary = false;
    bool sync_batch_norm = false;
    std::string dataset = "digits";
    std::vector<std::string> data;       // folders or files; empty: the digits that are part of dptk
    std::vector<std::string> test_data;  // folders of the dataset `images`; empty: part of `data`
    std::size_t image_size = 32;         // of the dataset `images`
    std::string augment = "crop-flip";   // of the dataset `images`
    bool skip_damaged = false;           // of the dataset `images`
    bool keep_hidden = false;            // of the dataset `images`
    std::optional<std::size_t> workers;
    int epochs = 15;
    std::size_t batch_size = 32;  // of each rank, or of each shard
    std::size_t accumulate = 1;
    std::string optimizer = "sgd";
    double lr = 0.05;
    bool scale_lr = false;
    std::vector<std::string> lr_factors;  // PATTERN=FACTOR
    std::vector<std::string> freeze;      // patterns of names of parameters
    double momentum = 0.9;                // of SGD
    double weight_decay = 0;
    std::string scheduler = "constant";
    std::vector<double> milestones;  // epochs
    double gamma = 0.1;              // the factor at each of them
    double lrf = 0;                  // the factor at the end, of cosine and linear
    double label_smoothing = 0;
    double warmup = 0;                // epochs
    double ema = 0;                   // the decay of the averages; 0: none
    int patience = 0;                 // epochs; 0: any
    std::string prune = "none";       // what makes a filter important, or none
    double sparsity = 0.5;            // the fraction of filters to prune
    std::optional<int> prune_epochs;  // the last ones, after pruning; default: half of them
    double slim_penalty = 1e-4;       // of --prune slim, before pruning
    std::string work_dir;             // for checkpoints and logs; empty: none
    std::string resume = "auto";      // or none, or a checkpoint
    int grace = 0;                    // seconds from a signal to the end; 0: any
    std::int64_t save_every = 0;      // steps; 0: only after epochs
    std::size_t keep_last = 2;
    std::string weights;  // a safetensors file; empty: none
    bool evaluate = false;
    std::uint64_t seed = 1;
    bool verify = false;
    std::string parallel = "ddp";  // or dp or both: each rank is a thread that has a replica
    std::optional<int> replicas;   // of dp and both, where it is always set
    int threads = 0;               // 0: cores / ranks on this host
    std::string progress = "auto";
    std::string overlap = "auto";
    std::string comm_hook = "none";
    bool shard_optimizer = false;
    bool elastic = false;
    std::size_t reproducible_shards = 0;  // 0: none
    std::string device = "cpu";
    std::string precision = "tf32";  // on a GPU
    bool cuda_graph = false;
    bool data_on_device = false;
    std::string as_yaml;  // the options in force, with their origins
};

/// Returns whether the network is pruned.
[[nodiscard]] inline bool prunes(const Options& options) {
    return options.prune != "none";
}

/// Returns the epoch, counted from 0, at whose beginning the network is pruned.
[[nodiscard]] inline int first_pruned_epoch(const Options& options) {
    return options.epochs - options.prune_epochs.value_or((options.epochs + 1) / 2);
}

/// The result of parsing: the options, or a text to print and an exit status; and a warning, which may be
/// empty.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
    std::string warning = {};
};

/// Parses the command line, and the inputs that `read_inputs` returns for the path of the configuration file.
/// The path is empty if the command line has none. `processes` is the number of processes that were started.
[[nodiscard]] ParsedOptions parse_options(
    int argc, char** argv, int processes,
    const std::function<ConfigInputs(const std::string& path)>& read_inputs);
