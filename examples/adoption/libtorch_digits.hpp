// The network of both libtorch programs, and their dataset: handwritten digits as tensors.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "digits.hpp"

class DigitTensors : public torch::data::datasets::Dataset<DigitTensors> {
  public:
    // Reads `prefix` + "images-idx3-ubyte.gz" and `prefix` + "labels-idx1-ubyte.gz".
    explicit DigitTensors(const std::string& prefix) {
        const Digits digits = read_digits(prefix);
        images_ = torch::tensor(digits.pixels).view({-1, 1, 8, 8});
        labels_ = torch::tensor(digits.labels).to(torch::kLong);
    }

    torch::data::Example<> get(std::size_t index) override {
        const auto i = static_cast<std::int64_t>(index);
        return {images_[i], labels_[i]};
    }

    torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

    [[nodiscard]] const torch::Tensor& images() const { return images_; }
    [[nodiscard]] const torch::Tensor& labels() const { return labels_; }

  private:
    torch::Tensor images_;
    torch::Tensor labels_;
};

struct Net : torch::nn::Module {
    torch::nn::Conv2d conv1 =
        register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
    torch::nn::Conv2d conv2 =
        register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
    torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(32 * 4 * 4, 64));
    torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, 10));

    torch::Tensor forward(torch::Tensor x) {
        x = torch::relu(conv1(x));
        x = torch::adaptive_avg_pool2d(torch::relu(conv2(x)), {4, 4});
        return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
    }
};
