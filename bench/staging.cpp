// Measures the overlap of staging through the host: an all_reduce of two ranks on one GPU, compared with
// the slower of its two parts, which are the copies and the same all_reduce of host memory. A ratio of 1 is
// perfect overlap. Uses thread ranks, or the ranks of a launcher. Prints medians of alternating calls.
//   staging
//   dptk-run --nproc-per-node 2 -- staging
#include <dptk/comm/staged.hpp>
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "measure.hpp"

namespace {

void measure(dptk::ProcessGroup& group) {
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    dptk::cuda::Stream in;
    dptk::cuda::Stream out;
    for (const std::size_t mebibytes : {1U, 4U, 16U, 64U, 256U}) {
        const std::size_t count = (mebibytes << 20) / sizeof(float);
        dptk::cuda::DeviceBuffer<float> there(count);
        dptk::cuda::PinnedBuffer<float> here(count);
        dptk::cuda::PinnedBuffer<float> back(count);
        dptk::cuda::copy_to_device(here, there.span(), in);
        in.synchronize();
        std::vector<double> staged;
        std::vector<double> copies;
        std::vector<double> network;
        for (int round = 0; round < 15; ++round) {
            group.barrier();
            staged.push_back(bench::microseconds([&] {
                group.all_reduce(there, dptk::ReduceOp::max, {.stream = in});
                in.synchronize();
            }));
            group.barrier();
            copies.push_back(bench::microseconds([&] {
                dptk::cuda::copy_to_host(there.span(), here, in);
                dptk::cuda::copy_to_device(back, there.span(), out);
                in.synchronize();
                out.synchronize();
            }));
            group.barrier();
            network.push_back(bench::microseconds([&] { group.all_reduce(here, dptk::ReduceOp::max); }));
        }
        if (group.rank() != 0) continue;
        const double slower = std::max(bench::median(copies), bench::median(network));
        std::printf("staged_allreduce_%zu_MiB_%d_%s %.0f us | copies %.0f us, network %.0f us | ratio %.2f\n",
                    mebibytes, group.size(), group.backend().c_str(), bench::median(staged),
                    bench::median(copies), bench::median(network), bench::median(staged) / slower);
    }
}

}  // namespace

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    if (dptk::read_launch_environment().world_size == 1) {
        dptk::launch_threads(2, measure);
    } else {
        dptk::ProcessGroup group = dptk::init_process_group();
        measure(group);
    }
}
