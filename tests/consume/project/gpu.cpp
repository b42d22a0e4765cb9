// Uses NCCL with the C++ compiler, in a project that does not enable the CUDA language.
#include <dptk/comm/nccl.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("no CUDA device");
        return 0;
    }
    dptk::ProcessGroup group = dptk::init_process_group();
    auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F));
    group.all_reduce(data, dptk::ReduceOp::avg);
    return dptk::cuda::to_host(data.span())[99] == 1.0F ? 0 : 1;
}
