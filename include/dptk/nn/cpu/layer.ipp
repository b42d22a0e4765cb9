#pragma once

#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Dims dims_of_batch(std::size_t batch, const Shape& sample) {
    Dims dims{static_cast<dnnl::memory::dim>(batch)};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return dims;
}

DPTK_INLINE std::vector<Parameter*> Layer::parameters() const {
    std::vector<Parameter*> all;
    for (const auto& parameter : parameters_) all.push_back(parameter.get());
    return all;
}

DPTK_INLINE PlanPointer Layer::plan(std::size_t batch, std::span<const Layout> inputs) {
    return translate_errors(info_.label, [&] { return make_plan(batch, inputs); });
}

DPTK_INLINE std::vector<Layout> Plan::plan_backward(const Layout& output_gradient) {
    return translate_errors(info().label, [&] { return do_plan_backward(output_gradient); });
}

DPTK_INLINE void Plan::forward(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_forward(arguments, pass); });
}

DPTK_INLINE void Plan::backward_parameters(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_backward_parameters(arguments, pass); });
}

DPTK_INLINE void Plan::backward_inputs(const Arguments& arguments, const Pass& pass) {
    translate_errors(info().label, [&] { do_backward_inputs(arguments, pass); });
}

DPTK_INLINE dnnl::memory Plan::add_workspace(const Layout& layout, WorkspaceUse when) {
    const dnnl::memory memory = unbound(context(), layout);
    workspaces.push_back({memory, layout.get_size(), when});
    return memory;
}

DPTK_INLINE Converter Plan::add_converter(const Layout& from, const Layout& wanted, WorkspaceUse when) {
    if (from == wanted) return {};
    return {context(), from, add_workspace(wanted, when)};
}

DPTK_INLINE Store::Store(const Context& context, const dnnl::memory& from)
    : to_(unbound(context, row_major_layout(dims_of(from.get_desc())))), copy_(reorder(context, from, to_)) {}

DPTK_INLINE void Store::operator()(Tensor<float>& to) {
    rebind_memory(to_, to.data());
    translate_errors("output", [&] { copy_.run(); });
}

DPTK_INLINE Sum::Sum(const Context& context, const dnnl::memory& a, const dnnl::memory& b,
                     const dnnl::memory& sum)
    : add_(context, describe_sum(context.engine, sum.get_desc(), {a.get_desc(), b.get_desc()}),
           {{DNNL_ARG_MULTIPLE_SRC, a}, {DNNL_ARG_MULTIPLE_SRC + 1, b}, {DNNL_ARG_DST, sum}}) {}

DPTK_INLINE void Sum::operator()() {
    translate_errors("sum of gradients", [&] { add_.run(); });
}

}  // namespace DPTK_NAMESPACE::nn::cpu
