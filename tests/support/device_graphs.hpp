// Steps of DistributedDataParallel in CUDA graphs, on CUDA test doubles and on real GPUs.
#pragma once

#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>

#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "support/device_gradients.hpp"
#include "support/device_hooks.hpp"

namespace test {

/// Captures a step on all ranks of this process at the same time: during a capture, no rank may synchronize
/// with a GPU or allocate device memory.
inline dptk::cuda::Graph capture_together(ProcessGroup& group, dptk::StreamRef stream,
                                          const std::function<void()>& step) {
    group.barrier();
    dptk::cuda::Graph graph = dptk::cuda::Graph::capture(stream, step);
    group.barrier();
    return graph;
}

/// Checks steps outside of a graph, and then steps in a graph that is launched several times.
inline void check_graph(ProcessGroup& group, dptk::Ready ready) {
    const dptk::cuda::Stream stream;
    DeviceNet<float> net(gradient_sizes, [](std::size_t) { return dptk::cuda::current_device(); });
    std::vector<dptk::cuda::DeviceBuffer<float>> fresh;
    for (std::size_t p = 0; p < net.gradients.size(); ++p) {
        std::vector<float> elements;
        for (std::size_t e = 0; e < gradient_sizes[p]; ++e)
            elements.push_back(gradient_element(group.rank(), p, e));
        fresh.push_back(dptk::cuda::to_device(elements, stream));
    }
    dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                      {.bucket_cap_mb = 0.0005, .ready = ready, .stream = stream});
    const auto step = [&] {
        ddp.begin_step(samples_of(Samples::one_more_on_each, group.rank()));
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
                CHECK(found[e] ==
                      doctest::Approx(average_gradient(Samples::one_more_on_each, group.size(), p, e)));
        }
    };
    for (int i = 0; i < 3; ++i) step();
    check();
    const dptk::cuda::Graph graph = capture_together(group, stream, step);
    for (int i = 0; i < 5; ++i) {
        for (dptk::cuda::DeviceBuffer<float>& gradient : net.gradients)
            dptk::cuda::copy_to_device(std::vector<float>(gradient.size(), -1), gradient.span(), stream);
        graph.launch(stream);
        check();
    }
    ddp.check();
    step();  // outside of the graph again
    check();
    ddp.check();
}

/// Returns the averages after 8 steps that start from the same gradients. The last `in_graph` steps run in a
/// graph if the hook is capturable.
inline std::vector<float> hooked_steps(ProcessGroup& group, const std::shared_ptr<dptk::CommHook>& hook,
                                       int in_graph) {
    const dptk::cuda::Stream stream;
    DeviceMatrix value(12, 10), gradient(12, 10), fresh(12, 10);
    std::vector<float> elements(120);
    for (std::size_t e = 0; e < elements.size(); ++e) elements[e] = hooked_element(group.rank(), 0, 0, e);
    dptk::cuda::copy_to_device(elements, fresh.elements.span(), stream);
    dptk::DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient), {.stream = stream});
    ddp.set_comm_hook(hook);
    const auto step = [&] {
        dptk::cuda::copy_on_device(fresh.elements.span(), gradient.elements.span(), stream);
        ddp.synchronize();
        static_cast<void>(ddp.clip_grad_norm(1));
    };
    for (int i = in_graph; i < 8; ++i) step();
    if (in_graph > 0 && !hook->is_capturable()) {
        CHECK_THROWS_AS(static_cast<void>(capture_together(group, stream, step)), dptk::ArgumentError);
        group.barrier();
        for (int i = 0; i < in_graph; ++i) step();
    } else if (in_graph > 0) {
        const dptk::cuda::Graph graph = capture_together(group, stream, step);
        for (int i = 0; i < in_graph; ++i) graph.launch(stream);
        ddp.check();
    }
    return dptk::cuda::to_host(gradient.elements.span(), stream);
}

/// Checks that all hooks have the same results with and without a graph.
inline void check_hooks_in_graph(ProcessGroup& group) {
    for (const NamedHook& hook : all_hooks()) {
        CAPTURE(hook.name);
        CHECK(hook.make(group)->is_capturable() ==
              (hook.name.find("powersgd") == std::string::npos &&
               hook.name.find("post_local_sgd") == std::string::npos && hook.name != "function"));
        check_near(hooked_steps(group, hook.make(group), 4), hooked_steps(group, hook.make(group), 0), 1e-6);
    }
}

}  // namespace test
