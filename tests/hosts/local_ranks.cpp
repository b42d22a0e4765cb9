// Prints where each rank is, to compare with where the launcher put it.
#include <dptk/ddp.hpp>

#include <unistd.h>

#include <cstdio>
#include <exception>

int main() {
    try {
        dptk::ProcessGroup group = dptk::init_process_group();
        char host[256] = {};
        gethostname(host, sizeof host - 1);
        std::printf("rank %d of %d: local rank %d of %d on %s\n", group.rank(), group.size(),
                    group.local_rank(), group.local_size(), host);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
