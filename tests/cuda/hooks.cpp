// Communication hooks on gradients in device memory, over NCCL and staged through the host.
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>

#include <string>
#include <tuple>
#include <vector>

#include "machine.hpp"
#include "support/device_hooks.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;
using dptk::Ready;

}  // namespace

TEST_CASE("hooks on gradients in device memory give the same results as in host memory") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            for (const test::NamedHook& hook : test::all_hooks()) {
                CAPTURE(backend);
                CAPTURE(ranks);
                CAPTURE(hook.name);
                const test::Machine machine(ranks);
                test::on_devices(ranks, [&](ProcessGroup& group) { test::check_hook(group, hook); });
            }
        }
    }
}

TEST_CASE("PowerSGD's state goes from device memory to host memory, and back") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        const dptk::hooks::PowerSGDOptions options{.start_step = 1, .min_compression_rate = 1};
        const auto whole = dptk::hooks::powersgd(options);
        const auto first = dptk::hooks::powersgd(options);
        const auto second = dptk::hooks::powersgd(options);
        const auto third = dptk::hooks::powersgd(options);
        std::vector<float> expected =
            test::hooked_postprocessing<test::HostMatrix>(group, whole, {.steps = 6});
        std::vector<float> found =
            test::hooked_postprocessing<test::DeviceMatrix>(group, first, {.steps = 2});
        const auto go_on = [&](const std::vector<float>& more) {
            found.insert(found.end(), more.begin(), more.end());
        };
        CHECK(first->state().steps == 2);
        CHECK(first->state().errors.at(0).size() == 120);
        CHECK_FALSE(first->state().errors.contains(1));
        second->load_state(first->state());
        go_on(test::hooked_postprocessing<test::HostMatrix>(group, second, {.steps = 2, .first_step = 2}));
        third->load_state(second->state());
        go_on(test::hooked_postprocessing<test::DeviceMatrix>(group, third, {.steps = 2, .first_step = 4}));
        test::check_near(found, expected, 1e-3);
        CHECK(third->bytes_sent() < whole->bytes_sent());
    });
}

TEST_CASE("a step with a hook on devices: mistakes are reported, and the host does not wait") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        test::DeviceMatrix a(4, 4), b(2, 5), da(4, 4), db(2, 5);
        DistributedDataParallel ddp(group, std::tie(a, b), std::tie(da, db),
                                    {.bucket_cap_mb = 1e-5, .ready = Ready::marked});
        ddp.set_comm_hook(dptk::hooks::powersgd({.start_step = 1, .min_compression_rate = 0.5}));
        const std::vector<std::string> waits = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaFree",
                                                "cudaMalloc"};
        const auto count = [&] {
            int calls = 0;
            for (const cuda_double::Count& each : cuda_double::counts()) {
                for (const std::string& function : waits)
                    if (each.place == cuda_double::Place{function, group.rank()}) calls += each.calls;
            }
            return calls;
        };
        const auto step = [&](bool mistaken) {
            if (!(mistaken && group.rank() == 1)) ddp.mark_ready(1);
            ddp.mark_ready(0);
            ddp.synchronize();
        };
        for (int i = 0; i < 3; ++i) step(false);
        ddp.check();
        const int before = count();
        for (int i = 0; i < 3; ++i) step(false);
        CHECK(count() == before);
        step(true);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { step(false); }, test::Agreed::yes));
        CHECK(test::contains(text, "rank 1: gradient [1] was neither marked ready nor unused"));
        step(false);
        ddp.check();
        ddp.set_comm_hook(nullptr);
        step(false);
        ddp.check();
        group.barrier();
    });
}
