// Steps of DistributedDataParallel on a real GPU: without waiting on the host, and in a CUDA graph.
#include <doctest/doctest.h>
#include <dptk/comm/init.hpp>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "support/device_gradients.hpp"
#include "support/device_graphs.hpp"

#ifdef DPTK_WITH_KERNELS

namespace {

using dptk::ProcessGroup;
using test::DeviceNet;

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

[[nodiscard]] bool is_staged() {
    const char* backend = std::getenv("DPTK_DEVICE_BACKEND");
    return backend != nullptr && std::string_view(backend) == "staged";
}

}  // namespace

TEST_CASE("a step of one rank in a CUDA graph" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked})
            test::check_graph(group, ready);
        test::check_hooks_in_graph(group);
    });
}

TEST_CASE("a step of the launcher's ranks in a CUDA graph" * doctest::skip(!is_launched() || is_staged())) {
    ProcessGroup group = dptk::init_process_group();
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    test::check_graph(group, dptk::Ready::marked);
    test::check_hooks_in_graph(group);
}

TEST_CASE("a forgotten gradient is reported one step later, or by check()" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        DeviceNet<float> net(test::gradient_sizes, [](std::size_t) { return dptk::cuda::current_device(); });
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients, {.ready = dptk::Ready::marked});
        const auto step = [&](std::size_t first) {
            for (std::size_t p = first; p < net.gradients.size(); ++p) ddp.mark_ready(p);
            ddp.synchronize();
        };
        step(0);
        step(1);
        CHECK_THROWS_AS(step(0), dptk::ArgumentError);
        step(0);
        step(1);
        CHECK_THROWS_AS(ddp.check(), dptk::ArgumentError);
        step(0);
        ddp.check();
    });
}

#endif
