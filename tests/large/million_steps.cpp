// A million steps of a tiny model, and no more memory at their end than at their beginning.
#include <doctest/doctest.h>

#include <fstream>
#include <vector>

#include "support/ranks.hpp"

namespace {

/// Bytes of this process in memory.
std::size_t resident_bytes() {
    std::size_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * 4096;
}

}  // namespace

TEST_CASE("a million steps take no memory") {
    constexpr int steps = 1'000'000;
    std::size_t early = 0, late = 0;
    dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1, 2, 3}, {4}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients,
                                          {.bucket_cap_mb = 1e-6, .ready = dptk::Ready::marked});
        for (int step = 0; step < steps; ++step) {
            ddp.begin_step(1);
            ddp.mark_ready(1);
            ddp.mark_ready(0);
            ddp.synchronize();
            if (group.rank() == 0 && step == steps / 10) early = resident_bytes();
        }
        if (group.rank() == 0) late = resident_bytes();
        CHECK(ddp.statistics().steps == steps);
    });
    MESSAGE("resident after a tenth: ", early >> 10, " KiB, at the end: ", late >> 10, " KiB");
    CHECK(late < early + (std::size_t{1} << 20));
}
