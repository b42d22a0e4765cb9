#include <dptk/core/error.hpp>

#include "dptk/core/tensor.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

using dptk::Shape;
using dptk::Tensor;

TEST_CASE("a new tensor holds zeros of its shape, aligned to 64 bytes") {
    const Tensor<float> tensor(Shape{3, 5, 7});
    CHECK(tensor.size() == 105);
    CHECK(tensor.shape() == Shape{3, 5, 7});
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64 == 0);
    for (const float value : tensor.values()) CHECK(value == 0);
}

TEST_CASE("a tensor without a shape is empty") {
    const Tensor<double> tensor;
    CHECK(tensor.size() == 0);
    CHECK(tensor.shape().empty());
    CHECK(tensor.values().empty());
}

TEST_CASE("resizing to what a tensor had room for before keeps its memory") {
    Tensor<float> tensor(Shape{8, 10});
    const float* before = tensor.data();
    tensor.resize(Shape{3, 10});
    CHECK(tensor.size() == 30);
    CHECK(tensor.data() == before);
    tensor.resize(Shape{80});
    CHECK(tensor.data() == before);
    tensor.resize(Shape{9, 10});
    CHECK(tensor.size() == 90);
    tensor.fill(2);
    CHECK(tensor[89] == 2);
    tensor.resize(2, Shape{3, 5});
    CHECK(tensor.shape() == Shape{2, 3, 5});
    CHECK(tensor.size() == 30);
}

TEST_CASE("a tensor moves and is not copied") {
    static_assert(!std::is_copy_constructible_v<Tensor<float>>);
    static_assert(std::is_nothrow_move_constructible_v<Tensor<float>>);
    Tensor<float> a(Shape{4});
    a[2] = 5;
    const float* data = a.data();
    Tensor<float> b(std::move(a));
    CHECK(b.data() == data);
    CHECK(b[2] == 5);
    CHECK(a.size() == 0);  // NOLINT(bugprone-use-after-move): that a moved-from tensor is empty is the point
    Tensor<float> c(Shape{9});
    c = std::move(b);
    CHECK(c.data() == data);
    CHECK(c.shape() == Shape{4});
    CHECK(b.size() == 0);  // NOLINT(bugprone-use-after-move)
    b.resize(Shape{2});
    CHECK(b.size() == 2);
}

TEST_CASE("a shape with more elements than can be counted is refused") {
    constexpr std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
    CHECK_THROWS_AS(Tensor<float>(Shape{huge, 3}), dptk::ArgumentError);
    CHECK(dptk::element_count(Shape{huge, 0, 7}) == 0);
    CHECK(dptk::element_count(Shape{}) == 1);
}
