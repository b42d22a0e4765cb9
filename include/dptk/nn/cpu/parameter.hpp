/// A parameter in the layout of the forward pass, with its gradient in the same layout.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/primitive.hpp"
#include "dptk/nn/reference/parameter.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A parameter of a oneDNN layer. Layouts may have padding: `count()` may exceed the number of elements in
/// the shape. The padding is zero, and the operations keep it zero.
class Parameter : public reference::ParameterMemory<float> {
  public:
    /// `shape` is PyTorch's. The dimensions of `layout`, in row-major order, hold the same elements as
    /// `shape`. `values` are row-major.
    Parameter(const Context& context, Shape shape, const Layout& layout, std::span<const float> values)
        : ParameterMemory(std::move(shape)), context_(context) {
        set_layout(layout);
        from_row_major(values, this->values());
    }

    [[nodiscard]] std::uint64_t layout() const noexcept { return layout_hash_; }
    [[nodiscard]] const dnnl::memory& value_memory() const noexcept { return value_memory_; }
    [[nodiscard]] const dnnl::memory& gradient_memory() const noexcept { return gradient_memory_; }

    void set_value_storage(std::span<float> storage) {
        ParameterMemory::set_value_storage(storage);
        rebind_memory(value_memory_, storage.data());
    }

    void set_gradient_storage(std::span<float> storage) {
        ParameterMemory::set_gradient_storage(storage);
        rebind_memory(gradient_memory_, storage.data());
    }

    void from_row_major(std::span<const float> values, std::span<float> out) const {
        // oneDNN writes zeros to padding in blocks, but not to padding between columns.
        if (has_padding(value_memory_.get_desc())) dptk::detail::fill(out, 0.0F);
        // A reorder only reads its source.
        reorder(context_, row_major(const_cast<float*>(values.data())), with_layout(out)).run();
    }

    void to_row_major(std::span<float> elements, std::span<float> out) const {
        reorder(context_, with_layout(elements), row_major(out.data())).run();
    }

    void make_row_major() {
        if (layout_hash_ == 0) return;
        if (has_storage_of_caller())
            throw ArgumentError(
                "the layout of a parameter cannot change after storage for it was set: call "
                "use_row_major_parameters() or agree_on_layouts() first");
        was_made_row_major_ = true;
        std::vector<float> own(element_count(shape()));
        to_row_major(values(), own);
        set_layout(row_major_layout(dims_of(value_memory_.get_desc())));
        from_row_major(own, values());
    }

    /// Returns whether make_row_major() has changed the layout.
    [[nodiscard]] bool was_made_row_major() const noexcept { return was_made_row_major_; }

  private:
    void set_layout(const Layout& layout) {
        allocate(floats_in(layout));
        layout_hash_ = layout_hash(layout);
        value_memory_ = dnnl::memory(layout, context_.engine, values().data());
        gradient_memory_ = dnnl::memory(layout, context_.engine, gradient().data());
    }

    [[nodiscard]] dnnl::memory with_layout(std::span<float> elements) const {
        return {value_memory_.get_desc(), context_.engine, elements.data()};
    }

    [[nodiscard]] dnnl::memory row_major(float* data) const {
        return {row_major_layout(dims_of(value_memory_.get_desc())), context_.engine, data};
    }

    Context context_;
    std::uint64_t layout_hash_ = 0;
    bool was_made_row_major_ = false;
    dnnl::memory value_memory_;
    dnnl::memory gradient_memory_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
