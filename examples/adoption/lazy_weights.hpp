// Stands in for dlib: a network that creates its weights in its first forward pass. A training step is two
// calls of the network. Gradients are means over the batch's samples.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace library {

// A network with one hidden layer that learns the function x * x. Sample n is x = sin(0.7 n).
class LazyNet {
  public:
    double compute_loss(std::span<const std::size_t> batch) {
        if (weights.empty()) make_weights();
        gradients.assign(weights.size(), 0);
        double loss = 0;
        for (const std::size_t sample : batch) loss += add_gradients(sample);
        for (double& gradient : gradients) gradient /= static_cast<double>(batch.size());
        return loss;
    }

    void update_parameters(double step) {
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= step * gradients[i];
    }

    std::vector<double> weights, gradients;

  private:
    static constexpr std::size_t hidden = 6;

    void make_weights() {
        for (std::size_t i = 0; i < 3 * hidden; ++i)
            weights.push_back(std::sin(static_cast<double>(13 * i + 1)));
    }

    double add_gradients(std::size_t sample) {
        const double x = std::sin(0.7 * static_cast<double>(sample));
        const double* const w = weights.data();
        double output = 0;
        for (std::size_t i = 0; i < hidden; ++i)
            output += w[i] * std::tanh(w[hidden + i] * x + w[2 * hidden + i]);
        const double error = output - x * x;
        for (std::size_t i = 0; i < hidden; ++i) {
            const double active = std::tanh(w[hidden + i] * x + w[2 * hidden + i]);
            const double back = error * w[i] * (1 - active * active);
            gradients[i] += error * active;
            gradients[hidden + i] += back * x;
            gradients[2 * hidden + i] += back;
        }
        return error * error / 2;
    }
};

}  // namespace library
