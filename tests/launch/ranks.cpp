// test_launch ranks STEPS [MILLISECONDS] [throw|early|late RANK]: a rank that only communicates. It sums
// the rank numbers STEPS times, with a pause after each sum. RANK throws in the middle, leaves the group in
// the middle, or is seconds late for the broadcast from rank 0 at the end.
// test_launch spawn: two ranks, which this process starts.
#include <dptk/comm/spawn.hpp>
#include <dptk/ddp.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::ranks {

namespace {

struct Arguments {
    int steps = 3;
    std::chrono::milliseconds pause{0};
    std::string ending;
    int victim = -1;
};

Arguments parse(const Words& words) {
    Arguments out;
    if (!words.empty()) out.steps = std::stoi(words[0]);
    if (words.size() > 1) out.pause = std::chrono::milliseconds(std::stoi(words[1]));
    if (words.size() > 3) {
        out.ending = words[2];
        out.victim = std::stoi(words[3]);
    }
    return out;
}

void run(const Arguments& arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::printf("rank %d of %d over %s, local rank %d of %d\n", group.rank(), group.size(),
                group.backend().c_str(), group.local_rank(), group.local_size());
    std::fflush(stdout);
    const int expected = group.size() * (group.size() - 1) / 2;
    for (int step = 0; step < arguments.steps; ++step) {
        if (group.all_reduce_value(group.rank()) != expected) std::abort();
        std::this_thread::sleep_for(arguments.pause);
        if (arguments.ending == "throw" && group.rank() == arguments.victim && step == arguments.steps / 2)
            throw std::runtime_error("had enough");
        if (arguments.ending == "early" && group.rank() == arguments.victim && step == arguments.steps / 2)
            return;
    }
    if (arguments.ending == "late" && group.rank() == arguments.victim)
        std::this_thread::sleep_for(std::chrono::seconds(4));
    int word = group.rank() == 0 ? 7 : 0;
    group.broadcast(std::span(&word, 1), 0);
    if (word != 7) std::abort();
}

int start(const Words& words) {
    const Arguments arguments = parse(words);
    if (arguments.ending == "throw") {
        run(arguments);
    } else {
        try {
            run(arguments);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "failed: %s\n", error.what());
            return 3;
        }
    }
    std::puts(dptk::is_initialized() ? "still initialized" : "done");
    return 0;
}

int spawn_two(const Words&) {
    dptk::spawn(2, [](dptk::ProcessGroup& group) {
        if (group.all_reduce_value(1) != 2) std::abort();
    });
    std::puts("done");
    return 0;
}

const Command command("ranks", start);
const Command spawn_command("spawn", spawn_two);

}  // namespace

}  // namespace launch::ranks
