// Trains a convolutional network on handwritten digits with libtorch, on any number of ranks:
//   mpirun -np 2 libtorch_cnn_after examples/data/digits/
#include <dptk/adapters/libtorch.hpp>
#include <dptk/adapters/libtorch_data.hpp>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include "libtorch_digits.hpp"

#include <cstdio>

int main(int argc, char** argv) {
    const std::string folder = argc > 1 ? argv[1] : "examples/data/digits/";
    dptk::ProcessGroup group = dptk::init_process_group();
    DigitTensors train(folder + "train-");
    const DigitTensors test(folder + "test-");

    torch::manual_seed(1);
    Net net;
    dptk::libtorch::DistributedDataParallel ddp(group, net);
    torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    dptk::libtorch::DistributedSampler sampler(train.size().value(), group);
    auto loader = torch::data::make_data_loader(train.map(torch::data::transforms::Stack<>()), sampler,
                                                64 / group.size());

    for (int epoch = 0; epoch < 10; ++epoch) {
        sampler.set_epoch(epoch);
        for (const auto& batch : *loader) {
            optimizer.zero_grad();
            torch::nll_loss(net.forward(batch.data), batch.target).backward();
            ddp.synchronize();
            optimizer.step();
        }
    }

    if (group.rank() != 0) return 0;
    const torch::NoGradGuard no_grad;
    const torch::Tensor hits = net.forward(test.images()).argmax(1).eq(test.labels());
    std::printf("test accuracy %.3f\n", hits.to(torch::kDouble).mean().item<double>());
}
