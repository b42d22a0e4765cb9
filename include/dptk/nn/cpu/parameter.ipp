#pragma once

#include "dptk/nn/cpu/parameter.hpp"

#include <utility>
#include <vector>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Parameter::Parameter(const Context& context, Shape shape, const Layout& layout,
                                 std::span<const float> values)
    : context_(context), shape_(std::move(shape)) {
    set_layout(layout);
    import_values(values);
}

DPTK_INLINE void Parameter::set_layout(const Layout& layout) {
    count_ = floats_in(layout);
    layout_hash_ = layout_hash(layout);
    value_storage_ = AlignedArray<float>(count_);
    gradient_storage_ = AlignedArray<float>(count_);
    value_ = dnnl::memory(layout, context_.engine, value_storage_.data());
    gradient_ = dnnl::memory(layout, context_.engine, gradient_storage_.data());
}

DPTK_INLINE void Parameter::set_value_storage(std::span<float> storage) {
    dptk::detail::copy(values(), storage.begin());
    rebind_memory(value_, storage.data());
    value_storage_ = {};
}

DPTK_INLINE void Parameter::set_gradient_storage(std::span<float> storage) {
    rebind_memory(gradient_, storage.data());
    gradient_storage_ = {};
}

DPTK_INLINE void Parameter::import_values(std::span<const float> values) {
    // A reorder only reads its source.
    reorder(context_, row_major(const_cast<float*>(values.data())), value_).run();
}

DPTK_INLINE void Parameter::export_values(std::span<float> out) const {
    reorder(context_, value_, row_major(out.data())).run();
}

DPTK_INLINE void Parameter::export_gradient(std::span<float> out) const {
    reorder(context_, gradient_, row_major(out.data())).run();
}

DPTK_INLINE void Parameter::zero_gradient() {
    dptk::detail::fill(gradient(), 0.0F);
}

DPTK_INLINE void Parameter::make_row_major() {
    if (layout_hash_ == 0) return;
    if (value_storage_.data() == nullptr || gradient_storage_.data() == nullptr)
        throw ArgumentError(
            "the layout of a parameter cannot change after storage for it was set: call "
            "use_row_major_parameters() or agree_on_layouts() first");
    was_made_row_major_ = true;
    std::vector<float> values(element_count(shape_));
    export_values(values);
    set_layout(row_major_layout(dims_of(value_.get_desc())));
    import_values(values);
}

DPTK_INLINE std::span<float> Parameter::elements(const dnnl::memory& memory) const {
    return {static_cast<float*>(memory.get_data_handle()), count_};
}

DPTK_INLINE dnnl::memory Parameter::row_major(float* data) const {
    return {row_major_layout(dims_of(value_.get_desc())), context_.engine, data};
}

}  // namespace DPTK_NAMESPACE::nn::cpu
