// Tests that training steps of networks after the first ones allocate no heap memory.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocations/counter.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/optim/sgd.hpp"
#include "nn/support.hpp"
#ifdef DPTK_WITH_ONEDNN
#include "dptk/nn/cpu/backend.hpp"
#endif

using namespace dptk::nn;

namespace {

/// Trains on batches of two sizes in turn, each in its own tensor.
template <class Backend>
class Training {
  public:
    Training(const std::vector<Operation>& layers, const Shape& sample)
        : net_(sequential(sample, layers), 3) {
        net_.for_each_parameter(
            [&](const dptk::ParameterRef& parameter) { parameters_.push_back(parameter); });
        for (const std::size_t n : {8U, 3U}) {
            batches_.push_back(testing::pattern_tensor<float>(1, testing::with_batch(n, sample)));
            labels_.emplace_back(n, std::uint8_t{1});
        }
    }

    void step() {
        for (std::size_t b = 0; b < batches_.size(); ++b) {
            static_cast<void>(softmax_cross_entropy(net_.forward(batches_[b]), labels_[b], gradient_));
            net_.backward(gradient_, InputGradient::compute);
            for (std::size_t i = 0; i < parameters_.size(); ++i) {
                const dptk::ParameterRef& parameter = parameters_[i];
                sgd_.step(i, std::span(static_cast<float*>(parameter.value), parameter.count),
                          std::span(static_cast<const float*>(parameter.gradient), parameter.count));
            }
        }
    }

  private:
    Network<Backend> net_;
    std::vector<dptk::ParameterRef> parameters_;
    std::vector<Tensor<float>> batches_;
    std::vector<std::vector<std::uint8_t>> labels_;
    Tensor<float> gradient_;
    dptk::SGD<float> sgd_{{.lr = 0.01, .momentum = 0.9}};
};

template <class Backend>
void check_step(const std::vector<Operation>& layers, const Shape& sample) {
    Training<Backend> training(layers, sample);
    CHECK(test::allocations([&] { training.step(); }) > 0);
    CHECK(test::allocations([&] { training.step(); }) == 0);
}

template <class Backend>
void check_steps() {
    SUBCASE(
        "of a convolutional network, with padded channels, copies between layouts and ReLUs in all places") {
        check_step<Backend>({Conv2d{.out_channels = 17, .kernel_size = 3, .padding = 1}, ReLU{}, MaxPool2d{2},
                             Conv2d{.out_channels = 32, .kernel_size = 3, .stride = 2, .padding = 1}, ReLU{},
                             Flatten{}, Linear{11}, ReLU{}, ReLU{}, Linear{3}},
                            {3, 9, 8});
    }
    SUBCASE("of an MLP") {
        check_step<Backend>({Flatten{}, ReLU{}, Linear{40}, ReLU{}, Linear{3}}, {1, 6, 6});
    }
}

}  // namespace

TEST_CASE("a warmed-up training step in plain loops allocates no heap memory") {
    check_steps<Reference<float>>();
}

#ifdef DPTK_WITH_ONEDNN
TEST_CASE("a warmed-up training step on oneDNN allocates no heap memory, except in oneDNN itself") {
    check_steps<Cpu>();
}
#endif
