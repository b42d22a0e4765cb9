/// Helpers of the tests of nn/ and optim/: reproducible numbers, comparisons, and PyTorch's recorded
/// results.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "dptk/nn/network.hpp"

namespace DPTK_NAMESPACE::nn::testing {

/// Multiples of 2^-17 in [-1/4, 1/4), exact in float and double; record_torch.py computes the same.
template <class T>
T pattern(std::uint32_t stream, std::size_t index) {
    std::uint32_t h = static_cast<std::uint32_t>(index) * 2654435761U + stream * 40503U + 12345U;
    h = (h ^ (h >> 15)) * 2246822519U;
    h = (h ^ (h >> 13)) * 3266489917U;
    return static_cast<T>((static_cast<double>(h >> 16) - 32768.0) / 131072.0);
}

template <class T>
std::vector<T> pattern_values(std::uint32_t stream, std::size_t count, double scale = 1) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(scale) * pattern<T>(stream, i);
    return values;
}

template <class T>
Tensor<T> pattern_tensor(std::uint32_t stream, Shape shape, double scale = 1) {
    Tensor<T> tensor(std::move(shape));
    const std::vector<T> values = pattern_values<T>(stream, tensor.size(), scale);
    std::copy(values.begin(), values.end(), tensor.data());
    return tensor;
}

inline Shape with_batch(std::size_t n, const Shape& sample) {
    Shape shape{n};
    shape.insert(shape.end(), sample.begin(), sample.end());
    return shape;
}

template <class Backend>
void set_pattern_parameters(Network<Backend>& net, double scale = 1) {
    using T = typename Network<Backend>::Scalar;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) {
        const std::size_t count = net.parameter_values(i).size();
        net.set_parameter_values(i, pattern_values<T>(static_cast<std::uint32_t>(i + 1), count, scale));
    }
}

/// Returns the derivative of the loss with respect to `value`, by central differences.
template <class Loss>
double finite_difference(double& value, Loss&& loss, double h = 1e-6) {
    const double at = value;
    value = at + h;
    const double above = loss();
    value = at - h;
    const double below = loss();
    value = at;
    return (above - below) / (2 * h);
}

/// Returns the largest difference, relative to the largest expected magnitude.
template <class A, class B>
double difference(const A& found, const B& expected) {
    if (found.size() != expected.size()) throw std::runtime_error("difference: sizes differ");
    double largest = 0;
    double scale = 1e-30;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        if (!(error <= largest)) largest = error;  // written so that a NaN is kept
        scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
    }
    return largest / scale;
}

/// The lines of a file with a name, a count and that many values.
class RecordedOutputs {
  public:
    explicit RecordedOutputs(const std::string& file_name) {
        std::string path = DPTK_TEST_SOURCE_DIR "/nn/";
        path += file_name;
        std::ifstream file(path);
        if (!file) throw std::runtime_error("cannot open " + path);
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string key;
            std::size_t count = 0;
            words >> key >> count;
            std::vector<double>& values = outputs_[key];
            for (double value = 0; words >> value;) values.push_back(value);
            if (values.size() != count) throw std::runtime_error(path + ": bad line " + key);
        }
    }

    [[nodiscard]] const std::vector<double>& at(const std::string& name) const { return outputs_.at(name); }

  private:
    std::map<std::string, std::vector<double>> outputs_;
};

/// The lines of torch_outputs.txt, by name.
inline const std::vector<double>& torch_output(const std::string& name) {
    static const RecordedOutputs outputs("torch_outputs.txt");
    return outputs.at(name);
}

}  // namespace DPTK_NAMESPACE::nn::testing
