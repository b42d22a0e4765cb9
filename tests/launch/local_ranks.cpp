// test_launch local_ranks: prints the local rank and the host of each rank, to be compared with the
// placement by the launcher, and the average of the rank numbers that post-local SGD computes among the
// ranks of a host.
#include <dptk/ddp.hpp>
#include <dptk/ddp/hooks/post_local_sgd.hpp>

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "command.hpp"

namespace launch::local_ranks {

namespace {

int start(const Words& /*none*/) {
    try {
        dptk::ProcessGroup group = dptk::init_process_group();
        char host[256] = {};
        gethostname(host, sizeof host - 1);
        std::vector<float> value(1), gradient = {static_cast<float>(group.rank())};
        dptk::DistributedDataParallel ddp(group, value, gradient);
        ddp.set_comm_hook(dptk::hooks::post_local_sgd(group.split_by_host(), {.start_step = 0}));
        ddp.synchronize();
        std::printf("rank %d of %d: local rank %d of %d on %s, average %.1f\n", group.rank(), group.size(),
                    group.local_rank(), group.local_size(), host, static_cast<double>(gradient[0]));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}

const Command command("local_ranks", start);

}  // namespace

}  // namespace launch::local_ranks
