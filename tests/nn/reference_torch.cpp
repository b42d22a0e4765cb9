#include <doctest/doctest.h>

#include "dptk/nn/reference/backend.hpp"
#include "torch_cases.hpp"
#include "torch_operations.hpp"

using namespace dptk::nn;

TEST_CASE("the reference backend computes what PyTorch does, in double to the last digits") {
    for (const testing::TorchCase& c : testing::torch_cases())
        testing::check_torch_case<Reference<double>>(c, 1e-13);
}

TEST_CASE("the reference backend computes what PyTorch does, in float to float's precision") {
    for (const testing::TorchCase& c : testing::torch_cases())
        testing::check_torch_case<Reference<float>>(c, 1e-5);
}

TEST_CASE("the reference backend computes what PyTorch does for all operations, in training and evaluation") {
    testing::check_torch_operations<Reference<double>>(1e-9);
    testing::check_torch_operations<Reference<float>>(2e-5);
}

TEST_CASE("a ResNet on the reference backend computes what PyTorch does") {
    testing::check_model<Reference<double>>("resnet18", 64);
}
