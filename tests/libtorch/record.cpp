// record OUT DIGITS: trains the network of the libtorch example for 50 steps. Rank 0 writes the values
// before each step to OUT.weights, and the averaged gradients after it to OUT.gradients: f32, in the order
// of the module's parameters.
#include <dptk/adapters/libtorch.hpp>
#include <dptk/comm/gloo.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <fstream>

#include "adoption/libtorch_digits.hpp"

namespace {

void write(std::ofstream& file, const at::Tensor& tensor) {
    const at::Tensor elements = tensor.detach().contiguous();
    file.write(static_cast<const char*>(elements.data_ptr()),
               static_cast<std::streamsize>(elements.numel() * elements.element_size()));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return std::fprintf(stderr, "usage: record OUT DIGITS\n"), 2;
    torch::set_num_threads(1);
    dptk::ProcessGroup group = dptk::init_process_group();
    const DigitTensors digits(argv[2]);
    torch::manual_seed(group.rank());  // all ranks get rank 0's values
    Net net;
    // Several buckets, so that some are sent before backward ends.
    dptk::libtorch::DistributedDataParallel ddp(group, net, {.bucket_cap_mb = 0.02});
    torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    std::ofstream weights;
    std::ofstream gradients;
    if (group.rank() == 0) {
        weights.open(std::string(argv[1]) + ".weights");
        gradients.open(std::string(argv[1]) + ".gradients");
    }
    for (std::int64_t step = 0; step < 50; ++step) {
        const at::Tensor samples =
            (torch::arange(16) + (step * group.size() + group.rank()) * 16) % digits.labels().size(0);
        if (group.rank() == 0)
            for (const at::Tensor& parameter : net.parameters()) write(weights, parameter);
        optimizer.zero_grad();
        const at::Tensor loss =
            torch::nll_loss(net.forward(digits.images().index({samples})), digits.labels().index({samples}));
        {
            const dptk::trace::Span span("backward");
            loss.backward();
        }
        ddp.synchronize();
        if (group.rank() == 0)
            for (const at::Tensor& parameter : net.parameters()) write(gradients, parameter.grad());
        optimizer.step();
    }
    group.barrier();
}
