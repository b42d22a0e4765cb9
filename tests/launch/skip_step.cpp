// test_launch skip_step: rank 1 skips the synchronize() of step 3, and then reduces its loss in its own
// group: the ranks wait for each other in two groups.
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

#include "command.hpp"

namespace launch::skip_step {

namespace {

int start(const Words&) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<float> value(4), gradient(4);
    dptk::DistributedDataParallel ddp(group, value, gradient);
    for (int step = 0; step < 6; ++step) {
        if (group.rank() != 1 || step != 3) ddp.synchronize(1);
        const float loss = group.all_reduce_value(1.0F);
        if (group.rank() == 0) std::printf("step %d: %g\n", step, static_cast<double>(loss));
    }
    return 0;
}

const Command command("skip_step", start);

}  // namespace

}  // namespace launch::skip_step
