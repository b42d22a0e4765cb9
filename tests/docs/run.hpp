/// Test driver for the code blocks of the documentation: main() of a generated program calls run_examples().
#pragma once

#include <dptk/comm/thread.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

/// A code block of a page: a fragment, which runs on thread ranks, or a complete program.
struct Example {
    const char* place;
    int ranks;
    void (*fragment)(dptk::ProcessGroup&);
    int (*program)();
};

/// Without arguments, runs all fragments. With `--list`, prints the places of the programs and their numbers
/// of ranks. With a place, runs the program there.
inline int run_examples(const std::vector<Example>& examples, int argc, char** argv) {
    const std::string argument = argc > 1 ? argv[1] : "";
    int failures = 0;
    for (const Example& example : examples) {
        if (argument == example.place && example.program != nullptr) return example.program();
        if (argument == "--list" && example.program != nullptr)
            std::printf("%s %d\n", example.place, example.ranks);
        if (!argument.empty() || example.fragment == nullptr) continue;
        std::printf("%s\n", example.place);
        std::fflush(stdout);
        try {
            dptk::launch_threads(example.ranks, example.fragment);
        } catch (const std::exception& error) {
            std::printf("%s: failed: %s\n", example.place, error.what());
            ++failures;
        }
    }
    return failures == 0 ? 0 : 1;
}
