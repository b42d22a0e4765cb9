// Stands in for mlpack with ensmallen: the optimizer owns the loop. It asks a function for the loss and the
// gradient of a batch, each a sum over the batch's samples, and divides the step by the batch's size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

namespace library {

template <class Function>
void optimize_by_sgd(Function& function, std::vector<double>& parameters, double step_size,
                     std::size_t batch_size, int epochs) {
    std::vector<double> gradient(parameters.size());
    const std::size_t samples = function.count();
    for (int epoch = 0; epoch < epochs; ++epoch) {
        function.shuffle();
        double loss = 0;
        for (std::size_t begin = 0; begin < samples; begin += batch_size) {
            const std::size_t count = std::min(batch_size, samples - begin);
            loss += function.evaluate_with_gradient(parameters, begin, count, gradient);
            for (std::size_t i = 0; i < parameters.size(); ++i)
                parameters[i] -= step_size / static_cast<double>(count) * gradient[i];
        }
        function.report(epoch, loss / static_cast<double>(samples));
    }
}

}  // namespace library

// The program's own function: logistic regression on 1,001 points in a plane.
class Classifier {
  public:
    Classifier() : order_(1001) { std::iota(order_.begin(), order_.end(), std::size_t{0}); }

    [[nodiscard]] std::size_t count() const { return order_.size(); }

    void shuffle() { std::shuffle(order_.begin(), order_.end(), random_); }

    double evaluate_with_gradient(const std::vector<double>& w, std::size_t begin, std::size_t count,
                                  std::vector<double>& gradient) const {
        std::fill(gradient.begin(), gradient.end(), 0);
        double loss = 0;
        for (std::size_t i = begin; i < begin + count; ++i) {
            const auto n = static_cast<double>(order_[i]);
            const double x = std::sin(3 * n), y = std::cos(5 * n);
            const double label = x + 2 * y > 0.3 ? 1 : 0;
            const double guess = 1 / (1 + std::exp(-(w[0] * x + w[1] * y + w[2])));
            loss -= std::log(label == 1 ? guess : 1 - guess);
            gradient[0] += (guess - label) * x;
            gradient[1] += (guess - label) * y;
            gradient[2] += guess - label;
        }
        return loss;
    }

    void report(int epoch, double loss) const { std::printf("epoch %d: loss %.6f\n", epoch + 1, loss); }

  private:
    std::vector<std::size_t> order_;
    std::mt19937 random_{7};
};
