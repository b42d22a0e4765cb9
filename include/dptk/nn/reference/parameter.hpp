/// A parameter of a network in plain loops.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// A value and its gradient, both row-major.
template <std::floating_point T>
class Parameter {
  public:
    Parameter(Shape shape, std::vector<T> values)
        : shape_(std::move(shape)),
          own_values_(std::move(values)),
          values_(own_values_),
          own_gradient_(values_.size()),
          gradient_(own_gradient_) {}

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

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

    void make_row_major() const noexcept {}

    void zero_gradient() { dptk::detail::fill(gradient_, T{0}); }

  private:
    Shape shape_;
    std::vector<T> own_values_;
    std::span<T> values_;
    std::vector<T> own_gradient_;
    std::span<T> gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::reference
