// test_launch mistake NAME [spawn]: trains two small models on three ranks, of which rank 1 makes the
// mistake NAME in step 3. With the word spawn, the program starts the ranks by itself.
#include <dptk/comm/spawn.hpp>
#include <dptk/ddp.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::mistakes {

namespace {

constexpr int steps = 6;
constexpr int faulty_step = 3;

struct Training {
    explicit Training(dptk::ProcessGroup& group_) : group(group_) {}

    dptk::ProcessGroup& group;
    std::vector<float> value = std::vector<float>(4), gradient = std::vector<float>(4);
    std::vector<float> head = std::vector<float>(4), head_gradient = std::vector<float>(4);
    dptk::DistributedDataParallel ddp{group, value, gradient};
    dptk::DistributedDataParallel head_ddp{group, head, head_gradient};
};

void hang() {
    std::this_thread::sleep_for(std::chrono::seconds(60));
}

/// A faulty step; `at` says whether this rank makes the mistake.
using Mistake = void (*)(Training&, bool at);

void step(Training& training) {
    training.ddp.synchronize(1);
    training.head_ddp.synchronize(1);
    static_cast<void>(training.group.all_reduce_value(1.0F));
}

/// Rank 1 sends `elements` to rank 2, which expects 4.
void pass_on(Training& training, std::size_t elements) {
    std::vector<float> data(training.group.rank() == 1 ? elements : 4);
    if (training.group.rank() == 1) training.group.send(data, 2);
    if (training.group.rank() == 2) training.group.recv(data, 1);
    step(training);
}

void on_rank(Training& training, bool at, void (*fault)()) {
    if (at) fault();
    step(training);
}

const std::map<std::string, Mistake> mistakes = {
    {"skip_synchronize",
     [](Training& training, bool at) {
         if (!at) training.ddp.synchronize(1);
         training.head_ddp.synchronize(1);
         static_cast<void>(training.group.all_reduce_value(1.0F));
     }},
    {"order_of_models",
     [](Training& training, bool at) {
         if (at) training.head_ddp.synchronize(1);
         training.ddp.synchronize(1);
         if (!at) training.head_ddp.synchronize(1);
     }},
    {"other_call",
     [](Training& training, bool at) {
         if (at) training.group.barrier();
         step(training);
     }},
    {"other_count",
     [](Training& training, bool at) {
         std::vector<float> data(at ? 5 : 4);
         training.group.all_reduce(data);
         step(training);
     }},
    {"hang", [](Training& training, bool at) { on_rank(training, at, hang); }},
    {"stop", [](Training& training, bool at) { on_rank(training, at, [] { raise(SIGSTOP); }); }},
    {"long_message", [](Training& training, bool at) { pass_on(training, at ? 5 : 4); }},
    {"short_message", [](Training& training, bool at) { pass_on(training, at ? 3 : 4); }},
    {"no_message",
     [](Training& training, bool) {
         std::vector<float> data(4);
         if (training.group.rank() == 2) training.group.recv(data, 1);
         step(training);
     }},
    {"exception", [](Training& training,
                     bool at) { on_rank(training, at, [] { throw std::runtime_error("no such image"); }); }},
    {"crash", [](Training& training, bool at) { on_rank(training, at, [] { raise(SIGSEGV); }); }},
    {"kill", [](Training& training, bool at) { on_rank(training, at, [] { raise(SIGKILL); }); }},
    {"exit", [](Training& training, bool at) { on_rank(training, at, [] { std::exit(3); }); }},
    {"exit_0", [](Training& training, bool at) { on_rank(training, at, [] { std::exit(0); }); }},
    {"hard_exit", [](Training& training, bool at) { on_rank(training, at, [] { _exit(3); }); }},
};

void train(dptk::ProcessGroup& group, const std::string& name) {
    { const auto closed = group.split(group.rank() % 2); }
    Training training(group);
    for (int number = 0; number < steps; ++number) {
        std::printf("rank %d begins step %d\n", group.rank(), number);
        std::fflush(stdout);
        const bool at = group.rank() == 1;
        if (name == "one_step_less" && at && number + 1 == steps) break;
        const auto mistake = mistakes.find(name);
        if (number == faulty_step && mistake != mistakes.end()) {
            mistake->second(training, at);
        } else {
            step(training);
        }
    }
}

int start(const Words& words) {
    if (words.size() == 2) {
        dptk::spawn(3, [&](dptk::ProcessGroup& group) { train(group, words[0]); });
    } else {
        dptk::ProcessGroup group = dptk::init_process_group();
        train(group, words.at(0));
    }
    return 0;
}

const Command command("mistake", start);

}  // namespace

}  // namespace launch::mistakes
