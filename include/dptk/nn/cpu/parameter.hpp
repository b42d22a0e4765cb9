/// A parameter in the layout of oneDNN's forward pass, with its gradient in the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/primitive.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A parameter of a oneDNN layer. Blocked layouts have padding: `count()` may exceed the number of elements
/// in the shape. The padding is zero, and oneDNN keeps it zero.
class Parameter {
  public:
    /// `shape` is PyTorch's. The dimensions of `layout`, in row-major order, hold the same elements as
    /// `shape`. `values` are row-major.
    Parameter(const Context& context, Shape shape, const Layout& layout, std::span<const float> values);

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    [[nodiscard]] std::uint64_t layout() const noexcept { return layout_hash_; }

    [[nodiscard]] std::span<float> values() { return elements(value_); }

    [[nodiscard]] std::span<float> gradient() { return elements(gradient_); }

    [[nodiscard]] const dnnl::memory& value_memory() const noexcept { return value_; }

    [[nodiscard]] const dnnl::memory& gradient_memory() const noexcept { return gradient_; }

    void set_value_storage(std::span<float> storage);

    void set_gradient_storage(std::span<float> storage);

    void import_values(std::span<const float> values);

    void export_values(std::span<float> out) const;

    void export_gradient(std::span<float> out) const;

    void zero_gradient();

    void make_row_major();

    /// Returns whether make_row_major() has changed the layout.
    [[nodiscard]] bool was_made_row_major() const noexcept { return was_made_row_major_; }

  private:
    /// Allocates memory for values and gradient.
    void set_layout(const Layout& layout);

    [[nodiscard]] std::span<float> elements(const dnnl::memory& memory) const;

    [[nodiscard]] dnnl::memory row_major(float* data) const;

    Context context_;
    Shape shape_;
    std::size_t count_ = 0;
    std::uint64_t layout_hash_ = 0;
    bool was_made_row_major_ = false;
    AlignedArray<float> value_storage_;
    AlignedArray<float> gradient_storage_;
    dnnl::memory value_;
    dnnl::memory gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/parameter.ipp"
#endif
