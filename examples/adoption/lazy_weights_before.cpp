// Trains a network that makes its weights in its first forward pass, in one process:
//   lazy_weights_before
#include <algorithm>
#include <numeric>

#include "lazy_weights.hpp"

int main() {
    library::LazyNet net;
    std::vector<std::size_t> samples(500);
    std::iota(samples.begin(), samples.end(), std::size_t{0});
    for (int epoch = 0; epoch < 10; ++epoch) {
        double loss = 0;
        for (std::size_t begin = 0; begin < samples.size(); begin += 32) {
            const std::size_t count = std::min<std::size_t>(32, samples.size() - begin);
            loss += net.compute_loss(std::span(samples).subspan(begin, count));
            net.update_parameters(0.1);
        }
        std::printf("epoch %d: loss %.6f\n", epoch + 1, loss / 500);
    }
}
