// CUDA graphs of whole steps over NCCL, operations that cannot be captured, and captures that fail.
#include <dptk/core/cuda/graph.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/post_local_sgd.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "machine.hpp"
#include "support/device_graphs.hpp"
#include "support/ranks.hpp"

using dptk::ProcessGroup;
using test::DeviceNet;

TEST_CASE("a step in a CUDA graph leaves the averages whenever it is launched") {
    for (const int ranks : {1, 2, 4}) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](ProcessGroup& group) {
            for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked})
                test::check_graph(group, ready);
        });
    }
}

TEST_CASE("steps with hooks in a CUDA graph do what they do one by one") {
    for (const int ranks : {1, 2, 4}) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](ProcessGroup& group) { test::check_hooks_in_graph(group); });
    }
}

TEST_CASE("a mistake in a step that is launched as a graph is thrown by check(), as often as it is made") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        const dptk::cuda::Stream stream;
        DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                          {.ready = dptk::Ready::marked, .stream = stream});
        const auto step = [&](std::size_t first) {
            for (std::size_t p = first; p < net.gradients.size(); ++p) ddp.mark_ready(p);
            ddp.synchronize();
        };
        for (int i = 0; i < 3; ++i) step(0);
        ddp.check();
        const std::size_t forgotten = group.rank() == 1 ? 1 : 0;
        const dptk::cuda::Graph graph = test::capture_together(group, stream, [&] { step(forgotten); });
        for (int launch = 0; launch < 2; ++launch) {
            graph.launch(stream);
            CHECK_THROWS_AS(ddp.check(), dptk::ArgumentError);
            step(0);
            ddp.check();
        }
    });
}

TEST_CASE("operations that cannot be captured are refused, and the stream stays usable") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        const dptk::cuda::Stream stream;
        DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                          {.ready = dptk::Ready::marked, .stream = stream});
        const auto mark_all = [&] {
            for (std::size_t p = 0; p < net.gradients.size(); ++p) ddp.mark_ready(p);
        };
        std::string text;
        group.barrier();
        CHECK(test::throws<dptk::ArgumentError>(text, [&] {
            static_cast<void>(dptk::cuda::Graph::capture(stream, [&] {
                ddp.begin_step();
                mark_all();
                ddp.synchronize();
            }));
        }));
        CHECK(test::contains(text, "cannot capture a step into a CUDA graph: first run two steps"));
        CHECK_THROWS_AS(static_cast<void>(dptk::cuda::Graph::capture({}, [] {})), dptk::ArgumentError);
        CHECK_FALSE(dptk::cuda::is_capturing(stream));
        group.barrier();
        ddp.begin_step();
        mark_all();
        ddp.synchronize();
        ddp.check();
    });
}

TEST_CASE("a hook's first step of its kind is not captured") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        const dptk::cuda::Stream stream;
        test::DeviceMatrix value(12, 10), gradient(12, 10);
        dptk::DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient), {.stream = stream});
        const auto step = [&] { ddp.synchronize(); };
        const auto refuses = [&] {
            group.barrier();
            std::string text;
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { static_cast<void>(dptk::cuda::Graph::capture(stream, step)); }));
            CHECK(test::contains(
                text, "cannot capture a step into a CUDA graph: first run a step without capture"));
            group.barrier();
        };
        const auto captures = [&] { test::capture_together(group, stream, step).launch(stream); };
        refuses();
        step();
        captures();
        ddp.set_comm_hook(dptk::hooks::fp16_compress());
        refuses();
        step();
        captures();
        ddp.set_comm_hook(dptk::hooks::post_local_sgd(group.split(0, group.rank()), {.start_step = 2}));
        step();
        step();
        refuses();
        step();
        captures();
        const auto powersgd = dptk::hooks::powersgd({.start_step = 1, .min_compression_rate = 1});
        ddp.set_comm_hook(powersgd);
        step();
        refuses();
        step();
        refuses();
        step();
        captures();
        powersgd->load_state(powersgd->state());
        refuses();
        step();
        step();
        captures();
        ddp.check();
    });
}

TEST_CASE("clipping in a captured step: not for the first time, and without waiting for its norm") {
    const test::Machine machine(1);
    test::on_devices(1, [](ProcessGroup& group) {
        const dptk::cuda::Stream stream;
        test::DeviceMatrix value(12, 10), gradient(12, 10);
        dptk::DistributedDataParallel ddp(group, std::tie(value), std::tie(gradient), {.stream = stream});
        const auto refuses = [&](const std::function<void()>& behind) {
            CHECK_THROWS_AS(static_cast<void>(dptk::cuda::Graph::capture(stream,
                                                                         [&] {
                                                                             ddp.synchronize();
                                                                             behind();
                                                                         })),
                            dptk::ArgumentError);
        };
        ddp.synchronize();
        refuses([&] { static_cast<void>(ddp.clip_grad_norm(1)); });
        static_cast<void>(ddp.clip_grad_norm(1));
        refuses([&] { static_cast<void>(ddp.clip_grad_norm(1).value()); });
        refuses([&] { static_cast<void>(ddp.unscale(2)); });
        dptk::cuda::copy_to_device(std::vector<float>(120, 2.0F), gradient.elements.span(), stream);
        std::optional<dptk::GradientNorm> norm;
        const dptk::cuda::Graph graph = dptk::cuda::Graph::capture(stream, [&] {
            ddp.synchronize();
            norm = ddp.clip_grad_norm(1);
        });
        graph.launch(stream);
        CHECK(norm->value() == doctest::Approx(std::sqrt(480.0)));
        CHECK(gradient.read()[7] == doctest::Approx(2 / std::sqrt(480.0)));
        ddp.check();
    });
}
