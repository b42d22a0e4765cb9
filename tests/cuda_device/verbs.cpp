// Every verb on a real GPU: one rank over NCCL, ranks that share the GPU and are staged through the host,
// and ranks of a launcher, over the backend that DPTK_DEVICE_BACKEND names.
#include <doctest/doctest.h>
#include <dptk/comm/init.hpp>
#include <dptk/comm/multi_device.hpp>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/tcp.hpp>
#include <dptk/comm/thread.hpp>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "support/cuda_memory.hpp"

namespace {

using dptk::ProcessGroup;

void check_on_device(ProcessGroup& group, test::Rounding rounding) {
    test::CudaMemory memory;
    const test::VerbSuiteOptions options{&memory, rounding};
    test::check_reductions_on(group, options);
    test::check_weighted_sums_on(group, options);
    test::check_moves_on(group, options);
}

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

[[nodiscard]] bool is_staged() {
    const char* backend = std::getenv("DPTK_DEVICE_BACKEND");
    return backend != nullptr && std::string_view(backend) == "staged";
}

}  // namespace

TEST_CASE("every verb, of one rank over NCCL" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& alone) {
        ProcessGroup group = dptk::nccl_communicator(alone);
        check_on_device(group, test::Rounding::on_the_way);
        test::check_verbs_on(group, {nullptr, test::Rounding::on_the_way});
    });
}

TEST_CASE("every verb, of two ranks on one GPU through the host" * doctest::skip(is_launched())) {
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    dptk::launch_threads(2, [](ProcessGroup& group) { check_on_device(group, test::Rounding::once); });
    ::unsetenv("DPTK_DEVICE_BACKEND");
}

TEST_CASE("every verb, of a thread for each GPU over NCCL" *
          doctest::skip(is_launched() || dptk::cuda::device_count() < 2)) {
    dptk::launch_threads(dptk::cuda::device_count(), [](ProcessGroup& threads) {
        dptk::cuda::set_device(threads.rank());
        check_on_device(threads, test::Rounding::on_the_way);
    });
}

TEST_CASE("every verb, of the launcher's ranks" * doctest::skip(!is_launched())) {
    ProcessGroup group = dptk::init_process_group();
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));
    check_on_device(group, is_staged() ? test::Rounding::once : test::Rounding::on_the_way);
}

TEST_CASE("the group's memory, calls in the background, and streams" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        dptk::cuda::Stream stream;
        const dptk::DeviceAllocation<float> memory = group.allocate_on_device<float>(1'000'000);
        CHECK(dptk::cuda::to_host(memory.span(), stream)[999'999] == 0.0F);
        dptk::Work work = group.all_reduce_async(memory, dptk::ReduceOp::avg, {.stream = stream});
        work.wait(stream);
        stream.synchronize();
        CHECK(work.done());
        group.barrier();
    });
}

TEST_CASE("all GPUs of one process" * doctest::skip(is_launched())) {
    dptk::launch_threads(1, [](ProcessGroup& group) {
        std::vector<dptk::cuda::DeviceBuffer<float>> buffers;
        for (int device = 0; device < dptk::cuda::device_count(); ++device) {
            const dptk::cuda::DeviceScope on(device);
            buffers.push_back(dptk::cuda::to_device(std::vector<float>(1000, 1.0F)));
        }
        dptk::multi_device::all_reduce(group, buffers);
        group.barrier();
        for (int device = 0; device < dptk::cuda::device_count(); ++device) {
            const dptk::cuda::DeviceScope on(device);
            CHECK(dptk::cuda::to_host(buffers[static_cast<std::size_t>(device)].span())[999] ==
                  static_cast<float>(dptk::cuda::device_count()));
        }
    });
}
