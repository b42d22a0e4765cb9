// Measures how much communication is overlapped with backward, on two ranks with a simulated link on which
// the all-reduce of all gradients takes as long as backward, for a model of equal layers and different
// bucket sizes. The last bucket is sent after backward has ended, so that its time is always exposed. The
// time exposed beyond it, in percent of the whole communication, is zero with an ideal overlap.
//   overlap [--quick]
#include <dptk/ddp.hpp>
#include "simulated/simulated.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "measure.hpp"

namespace {

constexpr int ranks = 2;
constexpr std::size_t layers = 64;
constexpr std::size_t layer_bytes = 65536;

/// Keeps a CPU core busy with a fixed amount of arithmetic.
void compute(int units) {
    volatile double sink = 0;
    double x = 1;
    for (int i = 0; i < units * 1000; ++i) x = std::sqrt(x + static_cast<double>(i));
    sink = x;
    static_cast<void>(sink);
}

/// Returns the amount of work for which the backward of a layer takes about 3 ms.
int units_of_a_layer() {
    constexpr int trial = 1000;
    const double one = bench::microseconds([] { compute(trial); }) / trial;
    return std::max(static_cast<int>(3000 / one), 1);
}

struct Model {
    std::vector<std::vector<float>> values{layers, std::vector<float>(layer_bytes / sizeof(float))};
    std::vector<std::vector<float>> gradients = values;
};

/// The duration of a step in microseconds.
struct Steps {
    double local = 0;
    double distributed = 0;
};

/// Measures, on both ranks at once, alternating steps: backward alone, and backward with an all-reduce of
/// all gradients that takes `communication` microseconds.
Steps measure(int units, std::size_t bucket_bytes, double communication) {
    // Each of two ranks sends half of the bytes twice.
    const dptk::SimulatedNetwork network{
        .hosts = ranks,
        .between_hosts = {
            .latency = dptk::SimulatedSeconds(20e-6),
            .bytes_per_second = static_cast<double>(layers * layer_bytes) / communication * 1e6}};
    Steps medians;
    dptk::launch_simulated(network, [&](dptk::ProcessGroup& group) {
        Model model;
        const double cap = static_cast<double>(bucket_bytes) / (1024 * 1024);
        dptk::DistributedDataParallel ddp(group, model.values, model.gradients,
                                          {.bucket_cap_mb = cap, .ready = dptk::Ready::marked});
        const auto backward = [&](auto&& on_ready) {
            for (std::size_t i = layers; i-- > 0;) {
                compute(units);
                on_ready(i);
            }
        };
        std::vector<double> local, distributed;
        for (int step = 0; step < 7; ++step) {
            group.barrier();
            local.push_back(bench::microseconds([&] { backward([](std::size_t) {}); }));
            group.barrier();
            distributed.push_back(bench::microseconds([&] {
                backward([&](std::size_t i) { ddp.mark_ready(i); });
                ddp.synchronize();
            }));
        }
        if (group.rank() == 0) medians = {bench::median(local), bench::median(distributed)};
    });
    return medians;
}

}  // namespace

int main(int argc, char** argv) {
    const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
    std::printf(
        "# two ranks, %zu equal layers, and a link on which sending all gradients takes as long as "
        "backward\n",
        layers);
    const int units = units_of_a_layer();
    const double communication = measure(units, layers * layer_bytes, 1e5).local;
    for (std::size_t in_bucket = 1; in_bucket <= layers; in_bucket *= quick ? 8 : 2) {
        const std::size_t bytes = in_bucket * layer_bytes;
        const Steps steps = measure(units, bytes, communication);
        const double last = communication * static_cast<double>(in_bucket) / static_cast<double>(layers);
        std::printf("overlap_step_even_%zu %.0f us | local %.0f us | %.3f\n", bytes / 1024, steps.distributed,
                    steps.local, steps.local / steps.distributed);
        std::printf("overlap_exposed_even_%zu %.1f %%\n", bytes / 1024,
                    100 * (steps.distributed - steps.local - last) / communication);
        std::fflush(stdout);
    }
}
