// test_package [RANKS]: ranks average their numbers as gradients, on two threads, and as the RANKS processes
// as which the program was started.
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

bool gradients_are_averaged(dptk::ProcessGroup& group) {
    std::vector<std::vector<float>> values = {{1}}, gradients = {{static_cast<float>(group.rank())}};
    dptk::DistributedDataParallel ddp(group, values, gradients);
    ddp.synchronize();
    return gradients[0][0] == static_cast<float>(group.size() - 1) / 2;
}

}  // namespace

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 1;
    bool right = true;
    dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
        if (!gradients_are_averaged(group)) right = false;
    });
    dptk::ProcessGroup group = dptk::init_process_group();
    right = right && group.size() == ranks && gradients_are_averaged(group);
    std::printf("dptk %s: rank %d of %d over %s\n", DPTK_VERSION, group.rank(), group.size(),
                group.backend().c_str());
    return right ? 0 : 1;
}
