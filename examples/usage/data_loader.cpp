// Stops in the middle of an epoch, and continues it with another loader, on half as many ranks if there are
// several. Each sample is used exactly once.
//   mpirun -np 4 data_loader
#include <dptk/data/data_loader.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using Dataset = std::vector<std::pair<std::vector<float>, int>>;

/// Sums the labels of up to `most` batches.
template <class Loader>
long sum_labels(Loader& loader, int most) {
    long sum = 0;
    for (const auto& [values, labels] : loader) {
        for (const int label : labels) sum += label;
        if (--most == 0) break;
    }
    return sum;
}

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    Dataset dataset;
    for (int i = 0; i <= 1000; ++i) dataset.push_back({{0.5F, 1.5F}, i});
    const dptk::DistributedSamplerOptions options{.seed = 7, .padding = dptk::Padding::none};

    dptk::DistributedSampler sampler(dataset, group, options);
    sampler.set_epoch(3);
    dptk::DataLoader loader(dataset, sampler, {.batch_size = 16, .workers = 2});
    long sum = sum_labels(loader, 5);
    const std::string state = loader.state().to_text();  // a checkpoint would contain this line

    const int ranks = (group.size() + 1) / 2;
    if (group.rank() < ranks) {
        dptk::DistributedSampler fewer(dataset.size(), static_cast<std::size_t>(ranks),
                                       static_cast<std::size_t>(group.rank()), options);
        dptk::DataLoader second(dataset, fewer, {.batch_size = 8});
        second.restore(dptk::DataLoaderState::from_text(state));
        sum += sum_labels(second, -1);
    }
    sum = group.all_reduce_value(sum);
    if (group.rank() == 0) std::printf("the sum of all labels is %ld\n", sum);
}
