// A custom communication hook, which sends gradients as 16-bit integers. Build and run:
//   mpicxx -std=c++20 -DDPTK_WITH_MPI -I include examples/own_hook.cpp -o own_hook && mpirun -np 2 ./own_hook
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

// A hook replaces the elements of a bucket by their sum over the ranks. The elements are already weighted, so
// that the sum is the average.
class QuantizingHook : public dptk::CommHook {
  public:
    // dptk compares the description between ranks: all ranks must set the same hook.
    [[nodiscard]] std::string description() const override { return "16-bit integers"; }

    // Collective: all ranks call it with the same buckets, in the same order. Only the hook uses this group.
    void reduce(dptk::ProcessGroup& group, dptk::HookBucket& bucket) override {
        const std::span<float> elements(static_cast<float*>(bucket.elements.data), bucket.elements.count);
        float largest = 0;
        for (const float element : elements) largest = std::max(largest, std::abs(element));
        largest = group.all_reduce_value(largest, dptk::ReduceOp::max);
        if (largest == 0) return;

        const float unit = largest * static_cast<float>(group.size()) / 32767.0F;  // sums do not overflow
        integers_.resize(elements.size());
        for (std::size_t i = 0; i < elements.size(); ++i)
            integers_[i] = static_cast<std::int16_t>(std::lround(elements[i] / unit));
        group.all_reduce(integers_, dptk::ReduceOp::sum);
        for (std::size_t i = 0; i < elements.size(); ++i)
            elements[i] = static_cast<float>(integers_[i]) * unit;
    }

  private:
    std::vector<std::int16_t> integers_;
};

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<float> weights(1000), gradients(1000);
    dptk::DistributedDataParallel ddp(group, weights, gradients);
    ddp.set_comm_hook(std::make_shared<QuantizingHook>());

    for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = std::sin(static_cast<float>(i)) + static_cast<float>(group.rank());
    ddp.synchronize();

    const float mean_rank = static_cast<float>(group.size() - 1) / 2;
    float difference = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i)
        difference =
            std::max(difference, std::abs(gradients[i] - std::sin(static_cast<float>(i)) - mean_rank));
    if (group.rank() == 0)
        std::printf("largest difference: %s than 0.0002\n", difference < 0.0002F ? "less" : "more");
}
