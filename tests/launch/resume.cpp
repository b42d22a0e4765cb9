// test_launch resume FILE: goes through an epoch of a DataLoader, and after each batch writes to FILE the
// loader's state and the samples that all ranks have had until then. If FILE exists, continues the epoch.
// FILE is replaced as a whole, so that it is intact whenever the ranks are killed.
#include <dptk/data/data_loader.hpp>
#include <dptk/ddp.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::resume {

namespace {

int start(const Words& words) {
    if (words.size() != 1) {
        std::fprintf(stderr, "usage: resume FILE\n");
        return 2;
    }
    const std::filesystem::path file = words[0];
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<int> dataset(12'001);
    std::iota(dataset.begin(), dataset.end(), 0);
    dptk::DistributedSampler sampler(dataset, group, {.seed = 7, .padding = dptk::Padding::none});
    sampler.set_epoch(2);
    dptk::DataLoader loader(dataset, sampler, {.batch_size = 4, .workers = 2});

    std::string seen;
    if (std::ifstream in(file); in) {
        std::string state;
        std::getline(in, state);
        loader.restore(dptk::DataLoaderState::from_text(state));
        seen.assign(std::istreambuf_iterator<char>(in), {});
    }
    group.barrier();  // all ranks have read the file
    for (const std::vector<int>& batch : loader) {
        for (const int sample : group.all_gather_uneven(batch).elements)
            seen += std::to_string(sample) + '\n';
        if (group.rank() == 0) {
            std::ofstream(file.string() + ".new") << loader.state().to_text() << '\n' << seen;
            std::filesystem::rename(file.string() + ".new", file);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (group.rank() == 0) std::printf("done\n");
    return 0;
}

const Command command("resume", start);

}  // namespace

}  // namespace launch::resume
