// A dataset with get(i), as in PyTorch's C++ API, and no operator[]: the sampler needs only its size.
//   mpirun -np 2 get_dataset
#include <dptk/ddp.hpp>

#include <cstdio>
#include <span>

struct Example {
    float data;
    float target;
};

class Squares {
  public:
    [[nodiscard]] std::size_t size() const { return 101; }
    [[nodiscard]] Example get(std::size_t i) const {
        const auto x = static_cast<float>(i);
        return {x, x * x};
    }
};
static_assert(dptk::IndexableDataset<Squares>);

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    const Squares dataset;
    dptk::DistributedSampler sampler(dataset, group, {.seed = 7, .padding = dptk::Padding::none});
    double sum = 0;
    for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 8)) {
        for (const std::size_t i : batch) sum += static_cast<double>(dataset.get(i).target);
    }
    sum = group.all_reduce_value(sum);
    if (group.rank() == 0) std::printf("the sum of all targets is %.0f\n", sum);
}
