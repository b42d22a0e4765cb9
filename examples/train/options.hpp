// The command line of the training example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct Options {
    std::string model = "convnet";
    bool summary = false;
    bool sync_batch_norm = false;
    std::string dataset = "digits";
    std::vector<std::string> data;  // folders or files; empty: the digits that are part of dptk
    std::size_t image_size = 32;    // of the dataset `images`
    std::optional<std::size_t> workers;
    int epochs = 15;
    std::size_t batch_size = 32;
    double lr = 0.05;
    double momentum = 0.9;
    double weight_decay = 0;
    std::uint64_t seed = 1;
    bool verify = false;
    int threads = 0;  // 0: cores / ranks on this host
    std::string progress = "auto";
    std::string overlap = "auto";
    std::string comm_hook = "none";
    std::size_t reproducible_shards = 0;  // 0: none
    std::string device = "cpu";
    std::string precision = "tf32";  // on a GPU
    bool cuda_graph = false;
    bool data_on_device = false;
};

/// The result of parsing the command line: the options, or a text to print and an exit status.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
};

[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);
