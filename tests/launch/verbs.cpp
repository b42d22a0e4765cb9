// test_launch verbs VERB VICTIM: a rank that repeats one kind of call until rank VICTIM kills itself, after
// 100 ms. The other ranks print the error that the call throws.
// test_launch verbs list: prints the verbs.
#include <dptk/data/host_dataset.hpp>
#include <dptk/ddp.hpp>

#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::verbs {

namespace {

using dptk::ProcessGroup;

/// Large enough to exceed the kernel's socket buffers.
constexpr std::size_t count = 300'000;

using Call = std::function<void(ProcessGroup&)>;

std::map<std::string, Call> calls() {
    const auto data = std::make_shared<std::vector<float>>(4 * count);
    const auto some = [data] { return std::span(*data).first(count); };
    const auto all = [data](const ProcessGroup& group) {
        return std::span(*data).first(count * static_cast<std::size_t>(group.size()));
    };
    const auto own = [all](const ProcessGroup& group) {
        return all(group).subspan(static_cast<std::size_t>(group.rank()) * count, count);
    };
    return {
        {"all_reduce", [=](ProcessGroup& group) { group.all_reduce(some(), dptk::ReduceOp::max); }},
        {"all_reduce_f16",
         [](ProcessGroup& group) {
             std::vector<dptk::float16> halves(count);
             group.all_reduce(halves);
         }},
        {"reduce", [=](ProcessGroup& group) { group.reduce(some(), 1, dptk::ReduceOp::max); }},
        {"broadcast", [=](ProcessGroup& group) { group.broadcast(some(), 1); }},
        {"all_gather", [=](ProcessGroup& group) { group.all_gather(own(group), all(group)); }},
        {"all_gather_uneven",
         [=](ProcessGroup& group) {
             const std::vector<float> mine(count / 2 + static_cast<std::size_t>(group.rank()));
             static_cast<void>(group.all_gather_uneven(mine));
         }},
        {"gather",
         [=](ProcessGroup& group) {
             if (group.rank() == 1) return group.gather(own(group), all(group), 1);
             group.gather(some(), std::span<float>(), 1);
         }},
        {"scatter",
         [=](ProcessGroup& group) {
             if (group.rank() == 1) return group.scatter(all(group), own(group), 1);
             group.scatter(std::span<float>(), some(), 1);
         }},
        {"reduce_scatter",
         [=](ProcessGroup& group) { group.reduce_scatter(all(group), own(group), dptk::ReduceOp::max); }},
        {"all_to_all", [=](ProcessGroup& group) { group.all_to_all(all(group), all(group)); }},
        {"all_to_all_uneven",
         [=](ProcessGroup& group) {
             const std::vector<std::size_t> counts(
                 static_cast<std::size_t>(group.size()),
                 all(group).size() / static_cast<std::size_t>(group.size()));
             group.all_to_all(all(group), all(group), counts, counts);
         }},
        {"barrier", [](ProcessGroup& group) { group.barrier(); }},
        {"messages",
         [=](ProcessGroup& group) {
             const int next = (group.rank() + 1) % group.size();
             dptk::Work sent = group.send_async(some(), next);
             static_cast<void>(group.recv(std::span(*data).last(count)));
             sent.wait();
         }},
        {"messages_of_unknown_length",
         [=](ProcessGroup& group) {
             // Most of the time, the sender ends between probe and recv.
             if (group.rank() == 1) {
                 dptk::Work first = group.send_async(some(), 0), second = group.send_async(some(), 2);
                 first.wait();
                 return second.wait();
             }
             const dptk::MessageInfo message = group.probe(1);
             std::this_thread::sleep_for(std::chrono::milliseconds(40));
             std::vector<float> received(message.count<float>());
             group.recv(received, message.source, message.tag);
         }},
        {"host_dataset",
         [](ProcessGroup& group) {
             const std::vector<double> numbers(50'000);
             const dptk::HostDataset copy(numbers, group);
         }},
        {"subgroup", [](ProcessGroup& group) { static_cast<void>(group.split(0)); }},
    };
}

int start(const Words& words) {
    if (words == Words{"list"}) {
        for (const auto& [name, call] : calls()) std::puts(name.c_str());
        return 0;
    }
    try {
        ProcessGroup group = dptk::init_process_group();
        const Call call = calls().at(words.at(0));
        call(group);
        if (group.rank() == std::stoi(words.at(1))) {
            std::thread([] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                std::raise(SIGKILL);
            }).detach();
        }
        while (true) call(group);
    } catch (const dptk::PeerLostError& error) {
        std::printf("lost: %s\n", error.what());
        return 3;
    }
}

const Command command("verbs", start);

}  // namespace

}  // namespace launch::verbs
