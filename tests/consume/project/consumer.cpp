// Averages a gradient over two thread ranks, and over the ranks of the job (one or two processes).
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

namespace {

/// The average of all rank numbers, computed as that of a gradient.
float average_of_ranks(dptk::ProcessGroup& group) {
    std::vector<std::vector<float>> values = {{1}}, gradients = {{static_cast<float>(group.rank())}};
    dptk::DistributedDataParallel ddp(group, values, gradients);
    ddp.synchronize();
    return gradients[0][0];
}

}  // namespace

int main() {
    int wrong = 0;
    dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
        if (average_of_ranks(group) != 0.5F) wrong = 1;
    });
    dptk::ProcessGroup group = dptk::init_process_group();
    if (average_of_ranks(group) != static_cast<float>(group.size() - 1) / 2) wrong = 1;
    std::printf("rank %d of %d over %s\n", group.rank(), group.size(), group.backend().c_str());
    return wrong;
}
