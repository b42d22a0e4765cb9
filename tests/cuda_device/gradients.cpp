// Gradients on a real GPU; tests/cuda has the same tests over the CUDA test double.
#include <doctest/doctest.h>
#include <dptk/comm/init.hpp>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/ddp/data_parallel.hpp>

#include <cstdlib>
#include <vector>

#include "support/device_clipping.hpp"
#include "support/device_gradients.hpp"
#include "support/device_hooks.hpp"

namespace {

using dptk::ProcessGroup;

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

template <class T>
void check_here(ProcessGroup& group) {
    test::check_gradients<T>(group, [](std::size_t) { return dptk::cuda::current_device(); });
}

}  // namespace

TEST_CASE_TEMPLATE("gradients of one rank over NCCL" * doctest::skip(is_launched()), T, float, double,
                   dptk::bfloat16) {
    dptk::launch_threads(1, [](ProcessGroup& group) { check_here<T>(group); });
}

TEST_CASE("gradients of two ranks on one GPU through the host" * doctest::skip(is_launched())) {
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    dptk::launch_threads(2, [](ProcessGroup& group) { check_here<float>(group); });
    ::unsetenv("DPTK_DEVICE_BACKEND");
}

TEST_CASE("gradients of the launcher's ranks" * doctest::skip(!is_launched())) {
    ProcessGroup group = dptk::init_process_group();
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    check_here<float>(group);
}

TEST_CASE("gradients on a GPU may have another type than their values" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        const auto here = [](std::size_t) { return dptk::cuda::current_device(); };
        test::check_gradients<float, dptk::bfloat16>(group, here);
        test::check_gradients<float, dptk::float16>(group, here);
#ifdef DPTK_WITH_KERNELS
        test::check_f32_averages<dptk::bfloat16>(group, here);
#endif
    });
}

#ifdef DPTK_WITH_KERNELS

TEST_CASE_TEMPLATE("averages on a GPU are clipped" * doctest::skip(is_launched()), T, float, double,
                   dptk::bfloat16, dptk::float16) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        test::check_clipping<T>(group, [](std::size_t) { return dptk::cuda::current_device(); });
        test::check_clipping_of_nonfinite(group, dptk::cuda::current_device());
        test::check_loss_scaler(group, dptk::cuda::current_device());
    });
}

TEST_CASE("hooks on a GPU" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        for (const test::NamedHook& hook : test::all_hooks()) {
            CAPTURE(hook.name);
            test::check_hook(group, hook);
        }
    });
}

TEST_CASE("hooks and clipping of the launcher's ranks" * doctest::skip(!is_launched())) {
    ProcessGroup group = dptk::init_process_group();
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    for (const test::NamedHook& hook : test::all_hooks()) {
        CAPTURE(hook.name);
        test::check_hook(group, hook);
    }
    test::check_clipping<float>(group, [](std::size_t) { return dptk::cuda::current_device(); });
    test::check_loss_scaler(group, dptk::cuda::current_device());
}

#endif

TEST_CASE("a model that spans all GPUs" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        test::check_gradients<float>(
            group, [](std::size_t p) { return static_cast<int>(p) % dptk::cuda::device_count(); });
    });
}

TEST_CASE("DataParallel over all GPUs" * doctest::skip(is_launched())) {
    std::vector<test::DeviceNet<float>> nets;
    std::vector<dptk::ParameterSource> sources;
    for (int device = 0; device < dptk::cuda::device_count(); ++device)
        nets.emplace_back(test::gradient_sizes, [&](std::size_t) { return device; });
    for (test::DeviceNet<float>& net : nets) sources.emplace_back(net.values, net.gradients);
    dptk::DataParallel parallel(std::move(sources));
    const std::vector<std::size_t> batch(nets.size() * 3);
    parallel.step(batch, [&](std::size_t replica, std::span<const std::size_t>) {
        test::DeviceNet<float>::fill(nets[replica].gradients, [&](std::size_t p, std::size_t e) {
            return test::gradient_element(static_cast<int>(replica), p, e);
        });
    });
    const std::vector<float> found = test::DeviceNet<float>::read(nets[0].gradients[3]);
    CHECK(found[299] == doctest::Approx(test::average_gradient(test::Samples::none,
                                                               static_cast<int>(nets.size()), 3, 299)));
}
