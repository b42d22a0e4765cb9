// Gradient clipping and loss scaling in device memory, compared with host memory.
#include <vector>

#include "machine.hpp"
#include "support/device_clipping.hpp"

using dptk::ProcessGroup;

TEST_CASE_TEMPLATE("averages in device memory are clipped as those in host memory", T, float, double,
                   dptk::bfloat16, dptk::float16) {
    for (const int ranks : {1, 2}) {
        {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                test::check_clipping<T>(group, [&](std::size_t) { return group.rank(); });
            });
        }
        const test::Machine machine(2 * ranks);
        test::on_devices(ranks, [](ProcessGroup& group) {
            test::check_clipping<T>(
                group, [&](std::size_t p) { return 2 * group.rank() + static_cast<int>(p / 2); });
        });
    }
}

TEST_CASE("averages in device memory that are infinite or not a number stay visible when they are clipped") {
    const test::Machine machine(1);
    test::on_devices(1, [](ProcessGroup& group) { test::check_clipping_of_nonfinite(group, 0); });
}

TEST_CASE("LossScaler with averages in device memory") {
    for (const int ranks : {1, 2, 4}) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](ProcessGroup& group) { test::check_loss_scaler(group, group.rank()); });
    }
}

TEST_CASE("clipping on one device does not block the host") {
    const test::Machine machine(1);
    test::on_devices(1, [](ProcessGroup& group) {
        test::Clipped<float> both(group, [](std::size_t) { return 0; });
        both.step(test::clipped_element);
        static_cast<void>(both.on_devices.clip_grad_norm(1));
        const auto count = [] {
            int calls = 0;
            for (const cuda_double::Count& each : cuda_double::counts()) {
                for (const char* function : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMalloc"})
                    if (each.place.function == function) calls += each.calls;
            }
            return calls;
        };
        const int before = count();
        const dptk::GradientNorm norm = both.on_devices.clip_grad_norm(1);
        both.on_devices.clip_grad_value(0.1);
        CHECK(count() == before);
        CHECK(norm.value() == doctest::Approx(1).epsilon(1e-4));
    });
}
