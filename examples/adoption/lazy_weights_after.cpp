// Trains a network that makes its weights in its first forward pass, on any number of ranks:
//   mpirun -np 2 lazy_weights_after
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <numeric>

#include "lazy_weights.hpp"

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto size = static_cast<std::size_t>(group.size());
    library::LazyNet net;
    std::vector<std::size_t> samples(500);
    std::iota(samples.begin(), samples.end(), std::size_t{0});
    net.compute_loss(std::span(samples).first(1));  // makes the weights
    dptk::DistributedDataParallel ddp(group, net.weights, net.gradients);
    for (int epoch = 0; epoch < 10; ++epoch) {
        double loss = 0;
        for (std::size_t begin = 0; begin < samples.size(); begin += 32) {
            const std::size_t count = std::min<std::size_t>(32, samples.size() - begin);
            const std::size_t first = count * rank / size;
            const std::size_t own = count * (rank + 1) / size - first;
            loss += net.compute_loss(std::span(samples).subspan(begin + first, own));
            ddp.synchronize(own);
            net.update_parameters(0.1);
        }
        loss = group.all_reduce_value(loss);
        if (group.rank() == 0) std::printf("epoch %d: loss %.6f\n", epoch + 1, loss / 500);
    }
}
