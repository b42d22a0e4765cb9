// Measures a training step of the models of bench/train_step.cpp as libtorch modules under
// dptk::libtorch::DistributedDataParallel, with one compute thread per rank. bench/train_step_torch.py is
// its Python counterpart.
//   mpirun -np 2 libtorch_step
#include <dptk/adapters/libtorch.hpp>
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
#include <dptk/ddp.hpp>

#include <cstdio>
#include <vector>

#include "measure.hpp"

namespace {

using torch::nn::Sequential;

Sequential linears(const std::vector<int>& sizes) {
    Sequential net;
    net->push_back(torch::nn::Flatten());
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        if (i > 1) net->push_back(torch::nn::ReLU());
        net->push_back(torch::nn::Linear(sizes[i - 1], sizes[i]));
    }
    return net;
}

Sequential convnet() {
    const auto convolution = [](int in, int out) {
        return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
    };
    return Sequential(convolution(3, 64), torch::nn::ReLU(), torch::nn::MaxPool2d(2), convolution(64, 128),
                      torch::nn::ReLU(), torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                      torch::nn::Linear(8192, 512), torch::nn::ReLU(), torch::nn::Linear(512, 10));
}

void measure(dptk::ProcessGroup& group, const char* name, Sequential net, at::IntArrayRef shape) {
    dptk::libtorch::DistributedDataParallel ddp(group, *net);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9));
    const at::Tensor data = torch::rand(shape);
    const at::Tensor labels = torch::arange(shape[0]) % 10;
    std::vector<double> times;
    for (int round = 0; round < 21; ++round) {
        constexpr int steps = 5;
        group.barrier();
        times.push_back(bench::microseconds([&] {
                            for (int step = 0; step < steps; ++step) {
                                optimizer.zero_grad();
                                torch::cross_entropy_loss(net->forward(data), labels).backward();
                                ddp.synchronize();
                                optimizer.step();
                            }
                        }) /
                        steps);
    }
    if (group.rank() != 0) return;
    std::printf("libtorch_step_%s %.0f us\n", name, bench::median(times));
    std::fflush(stdout);
}

}  // namespace

int main() {
    torch::set_num_threads(1);
    dptk::ProcessGroup group = dptk::init_process_group();
    measure(group, "mlp", linears({784, 256, 128, 10}), {64, 1, 28, 28});
    measure(group, "mlp_large", linears({784, 2048, 2048, 10}), {64, 1, 28, 28});
    measure(group, "convnet", convnet(), {32, 3, 32, 32});
}
