// The command line of the training example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

struct Options {
    std::string model = "convnet";
    std::string dataset = "digits";
    std::string data;  // empty: the digits that ship with dptk
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
    std::string precision = "tf32";  // of a GPU
    bool cuda_graph = false;
    bool data_on_device = false;
};

/// What came of the command line: options to run with, or a text to print and an exit status to end with.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
};

[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);
