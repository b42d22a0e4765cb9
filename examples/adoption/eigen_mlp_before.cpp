// Trains a multi-layer perceptron on handwritten digits with Eigen, in one process:
//   eigen_mlp_before examples/data/digits/
#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "digits.hpp"

using Eigen::MatrixXf;
using Eigen::VectorXf;
using Batch = std::span<const std::size_t>;

// A linear layer: y = W x + b, with one column per sample.
struct Layer {
    MatrixXf weight, weight_gradient;
    VectorXf bias, bias_gradient;

    Layer(Eigen::Index inputs, Eigen::Index outputs, std::mt19937& random)
        : weight(outputs, inputs), bias(VectorXf::Zero(outputs)) {
        std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(inputs)));
        weight = weight.unaryExpr([&](float) { return normal(random); });
    }

    MatrixXf forward(const MatrixXf& x) const { return (weight * x).colwise() + bias; }

    // Computes the gradients of W and b from the gradient of y, and returns the gradient of x.
    MatrixXf backward(const MatrixXf& x, const MatrixXf& y_gradient) {
        weight_gradient = y_gradient * x.transpose();
        bias_gradient = y_gradient.rowwise().sum();
        return weight.transpose() * y_gradient;
    }

    void step(float lr) {
        weight -= lr * weight_gradient;
        bias -= lr * bias_gradient;
    }
};

struct Net {
    std::mt19937 random{1};
    Layer first{64, 32, random};
    Layer second{32, 10, random};

    // Computes the gradients of the mean loss over the batch. Returns the sum of the losses.
    float learn(const Digits& digits, Batch batch) {
        const MatrixXf x = images(digits, batch);
        const MatrixXf hidden = first.forward(x).cwiseMax(0);
        MatrixXf p = second.forward(hidden);
        float loss = 0;
        for (Eigen::Index i = 0; i < p.cols(); ++i) {
            p.col(i) = (p.col(i).array() - p.col(i).maxCoeff()).exp();
            p.col(i) /= p.col(i).sum();
            const int label = digits.labels[batch[static_cast<std::size_t>(i)]];
            loss -= std::log(p(label, i));
            p(label, i) -= 1;
        }
        p /= static_cast<float>(std::max<std::size_t>(batch.size(), 1));
        const MatrixXf hidden_gradient = second.backward(hidden, p);
        first.backward(x, (hidden.array() > 0).select(hidden_gradient, 0));
        return loss;
    }

    static MatrixXf images(const Digits& digits, Batch batch) {
        MatrixXf x(Digits::pixels_per_image, batch.size());
        Eigen::Index column = 0;
        for (const std::size_t i : batch)
            x.col(column++) = Eigen::Map<const VectorXf>(digits.image(i), Digits::pixels_per_image);
        return x;
    }

    void step(float lr) {
        first.step(lr);
        second.step(lr);
    }
};

int main(int argc, char** argv) {
    const std::string folder = argc > 1 ? argv[1] : "examples/data/digits/";
    const Digits digits = read_digits(folder + "train-");
    Net net;
    std::vector<std::size_t> order(digits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});

    for (int epoch = 0; epoch < 20; ++epoch) {
        std::ranges::shuffle(order, net.random);
        float loss = 0;
        for (std::size_t begin = 0; begin < order.size(); begin += 64) {
            const Batch batch = Batch(order).subspan(begin, std::min<std::size_t>(64, order.size() - begin));
            loss += net.learn(digits, batch);
            net.step(0.2F);
        }
        std::printf("epoch %d: loss %.4f\n", epoch + 1, loss / static_cast<float>(digits.size()));
    }
}
