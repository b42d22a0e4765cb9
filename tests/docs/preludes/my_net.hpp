
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>
// A user-defined network and dataset.
struct MyDataset {
    [[nodiscard]] std::size_t size() const { return 512; }
    std::size_t operator[](std::size_t index) const { return index; }
};

struct MyNet {
    std::vector<std::vector<float>> weights{std::vector<float>(8, 1.0F), std::vector<float>(4)};
    std::vector<std::vector<float>> grads = weights;

    void forward_backward(const MyDataset&, std::span<const std::size_t> batch) {
        for (auto& gradient : grads) std::ranges::fill(gradient, static_cast<float>(batch.size()));
    }

    void step() {
        for (std::size_t i = 0; i < weights.size(); ++i)
            for (std::size_t j = 0; j < weights[i].size(); ++j) weights[i][j] -= 0.01F * grads[i][j];
    }
};

const MyDataset dataset;
