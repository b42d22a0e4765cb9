// test_launch shared_memory ROUNDS [MILLISECONDS]: a rank that sums numbers in shared memory. Each round
// sums many numbers in memory from allocate() and some in a std::vector, and then pauses. At the beginning
// the rank prints its process id and its number of mappings of shared pages.
#include <dptk/ddp.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::shared_memory {

namespace {

int count_shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);)
        found += line.find("memfd:dptk") != std::string::npos ? 1 : 0;
    return found;
}

void run(int rounds, std::chrono::milliseconds pause) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const dptk::Allocation<float> shared = group.allocate<float>(300'000);
    std::vector<float> own(30'000);
    std::printf("rank %d of %d, process %d, %d shared mappings\n", group.rank(), group.size(), getpid(),
                count_shared_mappings());
    std::fflush(stdout);
    const float expected = static_cast<float>(group.size() * (group.size() - 1)) / 2;
    const auto is_expected = [&](float value) { return value == expected; };
    for (int round = 0; round < rounds; ++round) {
        std::ranges::fill(shared, static_cast<float>(group.rank()));
        std::ranges::fill(own, static_cast<float>(group.rank()));
        group.all_reduce(shared);
        group.all_reduce(own);
        if (!std::ranges::all_of(shared, is_expected) || !std::ranges::all_of(own, is_expected)) std::abort();
        std::this_thread::sleep_for(pause);
    }
    group.barrier();
}

int start(const Words& words) {
    try {
        run(words.empty() ? 3 : std::stoi(words[0]),
            std::chrono::milliseconds(words.size() > 1 ? std::stoi(words[1]) : 0));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "failed: %s\n", error.what());
        return 3;
    }
    std::puts("done");
    return 0;
}

const Command command("shared_memory", start);

}  // namespace

}  // namespace launch::shared_memory
