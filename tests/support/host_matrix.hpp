// HostMatrix is a two-dimensional parameter in host memory.
#pragma once

#include <cstddef>
#include <vector>

namespace test {

/// A matrix in row-major order.
struct HostMatrix {
    std::vector<std::size_t> extents;
    std::vector<float> elements;

    HostMatrix(std::size_t rows, std::size_t columns) : extents{rows, columns}, elements(rows * columns) {}
    [[nodiscard]] const std::vector<std::size_t>& shape() const { return extents; }
    [[nodiscard]] float* data() { return elements.data(); }
    [[nodiscard]] float* begin() { return elements.data(); }
    [[nodiscard]] float* end() { return elements.data() + elements.size(); }
    [[nodiscard]] std::size_t size() const { return elements.size(); }
    void write(const std::vector<float>& from) { elements = from; }
    [[nodiscard]] std::vector<float> read() { return elements; }
};

}  // namespace test
