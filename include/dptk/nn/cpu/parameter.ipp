#pragma once

#include "dptk/nn/cpu/parameter.hpp"

#include <utility>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Parameter::Parameter(const Context& context, std::string_view name, Shape shape,
                                 const Layout& layout, std::size_t fan_in, Generator& generator)
    : context_(context),
      name_(name),
      shape_(std::move(shape)),
      count_(floats_in(layout)),
      layout_hash_(layout_hash(layout)),
      value_storage_(count_),
      gradient_storage_(count_),
      value_(layout, context.engine, value_storage_.data()),
      gradient_(layout, context.engine, gradient_storage_.data()) {
    import_values(initial_values<float>(element_count(shape_), fan_in, generator));
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

DPTK_INLINE std::span<float> Parameter::elements(const dnnl::memory& memory) const {
    return {static_cast<float*>(memory.get_data_handle()), count_};
}

DPTK_INLINE dnnl::memory Parameter::row_major(float* data) const {
    return {row_major_layout(dims_of(value_.get_desc())), context_.engine, data};
}

DPTK_INLINE void ParameterGradients::run(const dnnl::memory& source, const dnnl::memory& output_gradient) {
    compute_.set(DNNL_ARG_SRC, source_(source))
        .set(DNNL_ARG_DIFF_DST, output_gradient_(output_gradient))
        .run();
    if (copy_) copy_.run();
}

}  // namespace DPTK_NAMESPACE::nn::cpu
