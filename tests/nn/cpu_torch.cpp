#include <doctest/doctest.h>

#include "cpu_support.hpp"
#include "torch_cases.hpp"
#include "torch_operations.hpp"

using namespace dptk::nn;

TEST_CASE("oneDNN computes what PyTorch does, to float's precision") {
    for (const testing::TorchCase& c : testing::torch_cases())
        testing::check_torch_case<Cpu>(c, testing::cpu_tolerance);
}

TEST_CASE("oneDNN computes what PyTorch does for all operations, in training and evaluation") {
    testing::check_torch_operations<Cpu>(testing::cpu_tolerance);
}
