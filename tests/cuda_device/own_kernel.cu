// A user's kernel together with dptk, compiled by nvcc: verbs run after the kernel on its stream.
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

__global__ void add_one(float* data, std::size_t count) {
    const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    if (i < count) data[i] += 1.0F;
}

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    constexpr std::size_t count = 100'000;
    bool right = false;
    dptk::launch_threads(1, [&](dptk::ProcessGroup& group) {
        dptk::cuda::Stream stream;
        auto data = dptk::cuda::to_device(std::vector<float>(count, 1.0F), stream);
        for (int i = 0; i < 10; ++i) {
            add_one<<<(count + 255) / 256, 256, 0, stream.get()>>>(data.data(), count);
            group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
        }
        right = dptk::cuda::to_host(data.span(), stream) == std::vector<float>(count, 11.0F);
    });
    std::puts(right ? "ten steps, one after the other" : "the sums are wrong");
    return right ? 0 : 1;
}
