/// The base class of the reference layers, with activations and parameters as flat row-major arrays.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// A non-owning view of `batch` samples, row-major.
template <std::floating_point T>
struct Activation {
    std::span<const T> values;
    std::size_t batch = 0;
};

/// A value and its gradient, both row-major.
template <std::floating_point T>
class Parameter {
  public:
    Parameter(std::string_view name, Shape shape, std::size_t fan_in, Generator& generator)
        : name_(name),
          shape_(std::move(shape)),
          own_values_(initial_values<T>(element_count(shape_), fan_in, generator)),
          values_(own_values_),
          own_gradient_(values_.size()),
          gradient_(own_gradient_) {}

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    [[nodiscard]] std::string_view name() const noexcept { return name_; }

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    [[nodiscard]] std::size_t count() const noexcept { return values_.size(); }

    [[nodiscard]] std::uint64_t layout() const noexcept { return 0; }

    [[nodiscard]] std::span<T> values() noexcept { return values_; }

    [[nodiscard]] std::span<T> gradient() noexcept { return gradient_; }

    void set_value_storage(std::span<T> storage) {
        dptk::detail::copy(values_, storage.begin());
        values_ = storage;
        own_values_ = {};
    }

    void set_gradient_storage(std::span<T> storage) {
        gradient_ = storage;
        own_gradient_ = {};
    }

    void import_values(std::span<const T> values) { dptk::detail::copy(values, values_.begin()); }

    void export_values(std::span<T> out) const { dptk::detail::copy(values_, out.begin()); }

    void export_gradient(std::span<T> out) const { dptk::detail::copy(gradient_, out.begin()); }

  private:
    std::string_view name_;
    Shape shape_;
    std::vector<T> own_values_;
    std::span<T> values_;
    std::vector<T> own_gradient_;
    std::span<T> gradient_;
};

/// The base class of the reference layers; see NetworkLayer for the meaning of the calls.
template <std::floating_point T>
class Layer {
  public:
    Layer() = default;
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    virtual ~Layer() = default;

    virtual Activation<T> forward(const Activation<T>& input) = 0;

    virtual std::vector<Parameter<T>*> parameters() { return {}; }

    virtual void backward_parameters(const Activation<T>& /*output_gradient*/) {}

    virtual Activation<T> backward_input(const Activation<T>& output_gradient) = 0;
};

/// Resizes `memory` to `count` elements, all zero, and returns them.
template <std::floating_point T>
std::span<T> zeros(std::vector<T>& memory, std::size_t count) {
    memory.assign(count, T{0});
    return memory;
}

/// Computes Σ a[i]·b[i] in eight partial sums: a single running sum has larger rounding errors, and its
/// order prevents vectorization.
template <std::floating_point T>
T dot(const T* a, const T* b, std::size_t count) {
    constexpr std::size_t lanes = 8;
    T partial[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
    T sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (const T part : partial) sum += part;
    return sum;
}

/// Computes y[i] += factor · x[i].
template <std::floating_point T>
void add_scaled(T* y, T factor, const T* x, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

}  // namespace DPTK_NAMESPACE::nn::reference
