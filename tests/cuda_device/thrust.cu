// Thrust's vectors as parameters and gradients, and its algorithms together with dptk's verbs, compiled by
// nvcc.
#include <dptk/adapters/thrust.hpp>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp.hpp>

#include <thrust/device_vector.h>
#include <thrust/fill.h>
#include <thrust/transform.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Vectors = std::vector<thrust::device_vector<float>>;

bool holds(const thrust::device_vector<float>& vector, float expected) {
    std::vector<float> found(vector.size());
    thrust::copy(vector.begin(), vector.end(), found.begin());
    return found == std::vector<float>(vector.size(), expected);
}

/// Trains two ranks on one device, staged through the host. The gradients are 1 and 3, and their mean is 2.
void train(dptk::ProcessGroup& group) {
    const float rank = static_cast<float>(group.rank());
    Vectors values = {thrust::device_vector<float>(1000, rank), thrust::device_vector<float>(3, rank)};
    Vectors gradients = values;
    dptk::DistributedDataParallel ddp(group, values, gradients);
    for (int step = 0; step < 3; ++step) {
        for (auto& gradient : gradients) thrust::fill(gradient.begin(), gradient.end(), 1 + 2 * rank);
        ddp.synchronize();
        for (std::size_t p = 0; p < values.size(); ++p) {
            thrust::transform(values[p].begin(), values[p].end(), gradients[p].begin(), values[p].begin(),
                              thrust::minus<float>());
        }
    }
    ddp.check();
    for (const auto& value : values) {
        if (!holds(value, group.size() == 1 ? -3.0F : -6.0F)) throw dptk::Error("not the average");
    }
}

}  // namespace

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    dptk::launch_threads(1, train);
    ::setenv("DPTK_DEVICE_BACKEND", "staged", 1);
    dptk::launch_threads(2, train);
    std::puts("thrust: right");
}
