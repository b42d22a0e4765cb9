// Trains a convolutional network on handwritten digits with libtorch, in one process:
//   libtorch_cnn_before examples/data/digits/
#include "libtorch_digits.hpp"

#include <cstdio>

int main(int argc, char** argv) {
    const std::string folder = argc > 1 ? argv[1] : "examples/data/digits/";
    DigitTensors train(folder + "train-");
    const DigitTensors test(folder + "test-");

    torch::manual_seed(1);
    Net net;
    torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        train.map(torch::data::transforms::Stack<>()), 64);

    for (int epoch = 0; epoch < 10; ++epoch) {
        for (const auto& batch : *loader) {
            optimizer.zero_grad();
            torch::nll_loss(net.forward(batch.data), batch.target).backward();
            optimizer.step();
        }
    }

    const torch::NoGradGuard no_grad;
    const torch::Tensor hits = net.forward(test.images()).argmax(1).eq(test.labels());
    std::printf("test accuracy %.3f\n", hits.to(torch::kDouble).mean().item<double>());
}
