// test_launch thread_ranks [interface|throw|agreed|unconnected|die]: two threads of each process are ranks,
// which sum their numbers. interface: the program selects the network interface. The others are ways to fail:
// the last rank throws, while the first process's ranks have returned and the others wait for it; or a check
// fails on all ranks; or the threads of the last process cannot listen; or it dies.
#include <dptk/ddp.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "command.hpp"

namespace launch::thread_ranks {

namespace {

void run_rank(dptk::ProcessGroup& group, const std::string& ending) {
    std::printf("rank %d of %d over %s, local rank %d of %d\n", group.rank(), group.size(),
                group.backend().c_str(), group.local_rank(), group.local_size());
    std::fflush(stdout);
    const int last = group.size() - 1;
    if (group.all_reduce_value(group.rank()) != group.size() * last / 2) std::abort();
    dptk::on_all_or_none(group, [&] {
        if (ending == "agreed" && group.rank() == last) throw std::runtime_error("no such file");
    });
    if (ending == "throw" || ending == "die") {
        if (group.rank() < 2) return;  // the ranks of process 0
        if (group.rank() == last && ending == "die") std::_Exit(9);
        if (group.rank() == last) throw std::runtime_error("had enough");
        std::array<int, 1> data{};
        group.recv(data, last);
    }
}

int start(const Words& words) {
    const std::string ending = words.empty() ? "" : words[0];
    try {
        dptk::ProcessGroup processes =
            dptk::init_process_group({.network_interface = ending == "interface" ? "127.0.0.1" : ""});
        if (ending == "interface") static_cast<void>(processes.subgroup({0, 1}, {.backend = "tcp"}));
        if (ending == "unconnected" && processes.rank() == processes.size() - 1)
            setenv("DPTK_SOCKET_IFNAME", "no-such-interface", 1);
        dptk::launch_threads(processes, 2, [&](dptk::ProcessGroup& group) { run_rank(group, ending); });
        if (processes.all_reduce_value(1) != processes.size()) std::abort();
    } catch (const std::exception& error) {
        std::printf("failed: %s\n", error.what());
        return 3;
    }
    std::printf("done\n");
    return 0;
}

const Command command("thread_ranks", start);

}  // namespace

}  // namespace launch::thread_ranks
