// A small network for tests, independent of dptk::nn: y = W2 tanh(W1 x + b1) + b2, with hand-written
// gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace test {

/// A bucket cap, in MiB, that puts each parameter into a bucket of its own.
inline constexpr double one_byte = 1.0 / (1024 * 1024);

/// Returns the largest difference between corresponding elements.
template <class T>
double largest_difference(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
    double largest = 0;
    for (std::size_t p = 0; p < a.size(); ++p) {
        for (std::size_t i = 0; i < a[p].size(); ++i)
            largest =
                std::max(largest, std::abs(static_cast<double>(a[p][i]) - static_cast<double>(b[p][i])));
    }
    return largest;
}

/// Sample i of a synthetic regression problem.
struct Sample {
    double x[3];
    double y[2];

    explicit Sample(std::size_t i)
        : x{std::sin(1.0 * static_cast<double>(i)), std::cos(2.0 * static_cast<double>(i)), 0.1},
          y{x[0] * x[1], x[0] - x[1]} {}
};

template <class T>
class SmallNet {
  public:
    static constexpr std::size_t in = 3, hidden = 5, out = 2;

    /// The parameters W1, b1, W2, b2.
    std::vector<std::vector<T>> values = {std::vector<T>(hidden * in), std::vector<T>(hidden),
                                          std::vector<T>(out* hidden), std::vector<T>(out)};
    std::vector<std::vector<T>> gradients = values;

    explicit SmallNet(int seed) {
        double state = 0.3 + seed;
        for (auto& value : values) {
            for (T& element : value) element = static_cast<T>(0.5 * std::sin(state += 1.7));
        }
    }

    /// Computes the gradients of the mean squared error over the samples. Without samples, nothing is
    /// changed.
    void forward_backward(std::span<const std::size_t> samples) {
        if (samples.empty()) return;
        for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), T{0});
        for (const std::size_t i : samples) add_gradients(Sample(i), T{1} / static_cast<T>(samples.size()));
    }

    void step(T lr) {
        for (std::size_t p = 0; p < values.size(); ++p) {
            for (std::size_t i = 0; i < values[p].size(); ++i) values[p][i] -= lr * gradients[p][i];
        }
    }

  private:
    void add_gradients(const Sample& sample, T weight) {
        T activation[hidden];
        T activation_gradient[hidden] = {};
        for (std::size_t h = 0; h < hidden; ++h) {
            T sum = values[1][h];
            for (std::size_t i = 0; i < in; ++i) sum += values[0][h * in + i] * static_cast<T>(sample.x[i]);
            activation[h] = std::tanh(sum);
        }
        for (std::size_t o = 0; o < out; ++o) {
            T error = values[3][o] - static_cast<T>(sample.y[o]);
            for (std::size_t h = 0; h < hidden; ++h) error += values[2][o * hidden + h] * activation[h];
            error *= weight;
            gradients[3][o] += error;
            for (std::size_t h = 0; h < hidden; ++h) {
                gradients[2][o * hidden + h] += error * activation[h];
                activation_gradient[h] += error * values[2][o * hidden + h];
            }
        }
        for (std::size_t h = 0; h < hidden; ++h) {
            const T before = activation_gradient[h] * (1 - activation[h] * activation[h]);
            gradients[1][h] += before;
            for (std::size_t i = 0; i < in; ++i)
                gradients[0][h * in + i] += before * static_cast<T>(sample.x[i]);
        }
    }
};

}  // namespace test
