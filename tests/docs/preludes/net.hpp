
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>
// A user-defined network with separate forward and backward passes, batches, and an optimizer.
struct MyDataset {
    [[nodiscard]] std::size_t size() const { return 512; }
    std::size_t operator[](std::size_t index) const { return index; }
};

struct Net {
    std::vector<std::vector<float>> weights{std::vector<float>(8, 1.0F), std::vector<float>(4)};
    std::vector<std::vector<float>> gradients = weights;

    void for_each_parameter(auto& sink) {
        for (std::size_t i = 0; i < weights.size(); ++i) sink(weights[i], gradients[i]);
    }

    void forward(std::span<const std::size_t>) {}

    template <class OnGradient>
    void backward(OnGradient&& on_gradient) {
        for (std::size_t i = gradients.size(); i-- > 0;) {
            std::ranges::fill(gradients[i], 1.0F);
            on_gradient(i);
        }
    }

    void backward() {
        backward([](std::size_t) {});
    }

    void forward_backward(std::span<const std::size_t>) { backward(); }

    float forward_backward(const MyDataset&, std::span<const std::size_t>) {
        backward();
        return 1.0F;
    }
};

struct Optimizer {
    void step(Net& net) {
        for (std::size_t i = 0; i < net.weights.size(); ++i)
            for (std::size_t j = 0; j < net.weights[i].size(); ++j)
                net.weights[i][j] -= 0.01F * net.gradients[i][j];
    }
};
// ---
[[maybe_unused]] Net net;
[[maybe_unused]] Optimizer optimizer;
[[maybe_unused]] const MyDataset dataset;
[[maybe_unused]] const std::vector<std::size_t> batch{0, 1, 2};
[[maybe_unused]] const std::vector<std::vector<std::size_t>> batches{batch, {3, 4}};
