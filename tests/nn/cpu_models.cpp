// The models of the field on oneDNN, compared with what record_model_outputs.py has recorded of PyTorch.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "dptk/nn/cpu/backend.hpp"
#include "model_outputs.hpp"

using namespace dptk::nn;

TEST_CASE("models on oneDNN compute what PyTorch does") {
    for (const char* const name : {"resnet18", "resnet34", "resnet50", "resnest50", "mobilenet_v2"})
        testing::check_model<Cpu>(name, 64);
}

TEST_CASE("models on oneDNN compute what PyTorch does for large images") {
    for (const char* const name : {"resnet18", "resnet34", "resnet50", "resnest50", "mobilenet_v2"})
        testing::check_model<Cpu>(name, 224);
}
