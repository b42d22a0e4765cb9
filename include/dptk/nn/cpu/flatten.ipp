#pragma once

#include "dptk/nn/cpu/flatten.hpp"

#include <cstddef>

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Layout flat_layout(const Layout& input) {
    const Dims dims = dims_of(input);
    dnnl::memory::dim features = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) features *= dims[i];
    return row_major_layout({dims[0], features});
}

DPTK_INLINE FlattenLayer::Plan FlattenLayer::make_plan(const Layout& input) {
    const Layout images = row_major_layout(dims_of(input));
    Plan plan;
    plan.to_rows = Converter(context(), input, images);
    plan.output = unbound(context(), flat_layout(images));
    plan.input_gradient = unbound(context(), images);
    return plan;
}

DPTK_INLINE Activation FlattenLayer::reshape(const dnnl::memory& memory, const Activation& rows) {
    rebind_memory(memory, rows.memory.get_data_handle());
    return {.memory = memory, .overwritable = rows.overwritable};
}

DPTK_INLINE Activation FlattenLayer::do_forward(const Activation& input) {
    Plan& plan = plans_.select(input, [&](const Layout& layout) { return make_plan(layout); });
    return reshape(plan.output, plan.to_rows(input));
}

DPTK_INLINE Activation FlattenLayer::do_backward_input(const Activation& output_gradient) {
    Plan& plan = plans_.current();
    if (!plan.to_flat) plan.to_flat.emplace(context(), output_gradient.layout(), plan.output.get_desc());
    return reshape(plan.input_gradient, (*plan.to_flat)(output_gradient));
}

}  // namespace DPTK_NAMESPACE::nn::cpu
