// Steps of DistributedDataParallel on a real GPU that the host does not wait for, and in a CUDA graph.
#include <doctest/doctest.h>
#include <dptk/comm/init.hpp>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "support/device_gradients.hpp"
#include "support/device_hooks.hpp"

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

/// Steps one by one, and then in a graph that is launched several times.
void check_graph(ProcessGroup& group, dptk::Ready ready) {
    const dptk::cuda::Stream stream;
    DeviceNet<float> net(test::gradient_sizes, [](std::size_t) { return dptk::cuda::current_device(); });
    std::vector<dptk::cuda::DeviceBuffer<float>> fresh;
    for (std::size_t p = 0; p < net.gradients.size(); ++p) {
        std::vector<float> elements;
        for (std::size_t e = 0; e < test::gradient_sizes[p]; ++e)
            elements.push_back(test::gradient_element(group.rank(), p, e));
        fresh.push_back(dptk::cuda::to_device(elements, stream));
    }
    dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                      {.bucket_cap_mb = 0.0005, .ready = ready, .stream = stream});
    const auto step = [&] {
        ddp.begin_step(test::samples_of(test::Samples::one_more_on_each, group.rank()));
        for (std::size_t p = net.gradients.size(); p-- > 0;) {
            dptk::cuda::copy_on_device(fresh[p].span(), net.gradients[p].span(), stream);
            if (ready == dptk::Ready::marked) ddp.mark_ready(p);
        }
        ddp.synchronize();
    };
    const auto check = [&] {
        for (std::size_t p = 0; p < net.gradients.size(); ++p) {
            const std::vector<float> found = dptk::cuda::to_host(net.gradients[p].span(), stream);
            for (std::size_t e = 0; e < found.size(); ++e)
                CHECK(found[e] == doctest::Approx(test::average_gradient(test::Samples::one_more_on_each,
                                                                         group.size(), p, e)));
        }
    };
    for (int i = 0; i < 3; ++i) step();
    check();
    const dptk::cuda::Graph graph = dptk::cuda::Graph::capture(stream, step);
    for (int i = 0; i < 5; ++i) {
        for (dptk::cuda::DeviceBuffer<float>& gradient : net.gradients)
            dptk::cuda::copy_to_device(std::vector<float>(gradient.size(), -1), gradient.span(), stream);
        graph.launch(stream);
        check();
    }
    ddp.check();
    step();  // and one by one again
    check();
    ddp.check();
}

/// The averages behind 8 steps that begin with the same gradients, of which the last ones are a graph's.
std::vector<float> hooked_steps(ProcessGroup& group, const std::shared_ptr<dptk::CommHook>& hook,
                                int in_graph) {
    const dptk::cuda::Stream stream;
    test::DeviceMatrix value(12, 10), gradient(12, 10), fresh(12, 10);
    std::vector<float> elements(120);
    for (std::size_t e = 0; e < elements.size(); ++e)
        elements[e] = test::hooked_element(group.rank(), 0, 0, e);
    dptk::cuda::copy_to_device(elements, fresh.elements.span(), stream);
    dptk::DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient), {.stream = stream});
    ddp.set_comm_hook(hook);
    const auto step = [&] {
        dptk::cuda::copy_on_device(fresh.elements.span(), gradient.elements.span(), stream);
        ddp.synchronize();
        static_cast<void>(ddp.clip_grad_norm(1));
    };
    for (int i = in_graph; i < 8; ++i) step();
    if (in_graph > 0) {
        const dptk::cuda::Graph graph = dptk::cuda::Graph::capture(stream, step);
        for (int i = 0; i < in_graph; ++i) graph.launch(stream);
        ddp.check();
    }
    return dptk::cuda::to_host(gradient.elements.span(), stream);
}

/// Of all hooks that do the same in all steps by then.
void check_hooks_in_graph(ProcessGroup& group) {
    for (const test::NamedHook& hook : test::all_hooks()) {
        CAPTURE(hook.name);
        const bool may_be = hook.name != "powersgd without memory";
        if (may_be)
            test::check_near(hooked_steps(group, hook.make(group), 4),
                             hooked_steps(group, hook.make(group), 0), 1e-6);
        if (!may_be) CHECK_THROWS_AS(hooked_steps(group, hook.make(group), 4), dptk::ArgumentError);
    }
}

}  // namespace

TEST_CASE("a step of one rank in a CUDA graph" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked})
            check_graph(group, ready);
        check_hooks_in_graph(group);
    });
}

TEST_CASE("a step of the launcher's ranks in a CUDA graph" * doctest::skip(!is_launched() || is_staged())) {
    ProcessGroup group = dptk::init_process_group();
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    check_graph(group, dptk::Ready::marked);
    check_hooks_in_graph(group);
}

TEST_CASE("a forgotten gradient is told of one step later, or by check()" * doctest::skip(is_launched())) {
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
