/// Parameters of networks in host memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// The elements of a value and of its gradient, in memory of their own until storage for them is set. See
/// LayerParameter for the meaning of the calls.
template <std::floating_point T>
class ParameterMemory {
  public:
    explicit ParameterMemory(Shape shape) : shape_(std::move(shape)) {}

    ParameterMemory(const ParameterMemory&) = delete;
    ParameterMemory& operator=(const ParameterMemory&) = delete;

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] std::size_t count() const noexcept { return values_.size(); }
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

    void zero_gradient() { dptk::detail::fill(gradient_, T{0}); }

  protected:
    /// Makes memory for `count` elements and their gradient.
    void allocate(std::size_t count) {
        own_values_ = AlignedArray<T>(count);
        own_gradient_ = AlignedArray<T>(count);
        values_ = {own_values_.data(), count};
        gradient_ = {own_gradient_.data(), count};
    }

    [[nodiscard]] bool has_storage_of_caller() const noexcept {
        return own_values_.data() == nullptr || own_gradient_.data() == nullptr;
    }

    std::span<T> values_;
    std::span<T> gradient_;

  private:
    Shape shape_;
    AlignedArray<T> own_values_;
    AlignedArray<T> own_gradient_;
};

/// A row-major parameter.
template <std::floating_point T>
class Parameter : public ParameterMemory<T> {
  public:
    Parameter(Shape shape, std::span<const T> values) : ParameterMemory<T>(std::move(shape)) {
        this->allocate(values.size());
        from_row_major(values, this->values_);
    }

    [[nodiscard]] std::uint64_t layout() const noexcept { return 0; }

    void from_row_major(std::span<const T> values, std::span<T> out) const {
        dptk::detail::copy(values, out.begin());
    }
    void to_row_major(std::span<T> elements, std::span<T> out) const {
        dptk::detail::copy(elements, out.begin());
    }
    void make_row_major() const noexcept {}
};

}  // namespace DPTK_NAMESPACE::nn::reference
