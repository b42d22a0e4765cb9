/// A parameter in the layout of oneDNN's forward pass, with its gradient in the same layout, and the
/// operation that computes the gradients of a layer's weight and bias.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/initialize.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A parameter of a oneDNN layer. Blocked layouts have padding: `count()` may exceed the number of elements
/// in the shape. The padding is zero, and oneDNN keeps it zero.
class Parameter {
  public:
    /// `shape` is PyTorch's. The dimensions of `layout`, in row-major order, hold the same elements as
    /// `shape`.
    Parameter(const Context& context, std::string_view name, Shape shape, const Layout& layout,
              std::size_t fan_in, Generator& generator);

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    [[nodiscard]] std::string_view name() const noexcept { return name_; }

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

  private:
    [[nodiscard]] std::span<float> elements(const dnnl::memory& memory) const;

    [[nodiscard]] dnnl::memory row_major(float* data) const;

    const Context& context_;
    std::string_view name_;
    Shape shape_;
    std::size_t count_;
    std::uint64_t layout_hash_;
    AlignedArray<float> value_storage_;
    AlignedArray<float> gradient_storage_;
    dnnl::memory value_;
    dnnl::memory gradient_;
};

/// Computes the gradients of a weight and a bias from a layer's source and output gradient, and converts
/// between layouts if the primitive needs other ones. Empty if default-constructed.
class ParameterGradients {
  public:
    ParameterGradients() = default;

    /// `source` and `output_gradient` are the layouts of the arguments of run().
    template <class Description>
    ParameterGradients(const Context& context, const Description& described, const Layout& source,
                       const Layout& output_gradient, const Parameter& weight, const Parameter& bias)
        : source_(context, source, described.src_desc()),
          output_gradient_(context, output_gradient, described.diff_dst_desc()) {
        // If the primitive writes weight gradients in another layout than the parameter's, run() copies them.
        dnnl::memory computed = weight.gradient_memory();
        if (described.diff_weights_desc() != computed.get_desc()) {
            computed = dnnl::memory(described.diff_weights_desc(), context.engine);
            copy_ = reorder(context, computed, weight.gradient_memory());
        }
        compute_ =
            Operation(context, described,
                      {{DNNL_ARG_DIFF_WEIGHTS, computed}, {DNNL_ARG_DIFF_BIAS, bias.gradient_memory()}});
    }

    explicit operator bool() const noexcept { return static_cast<bool>(compute_); }

    void run(const dnnl::memory& source, const dnnl::memory& output_gradient);

  private:
    Converter source_;
    Converter output_gradient_;
    Operation compute_;
    Operation copy_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/parameter.ipp"
#endif
