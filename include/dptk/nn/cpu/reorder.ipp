#pragma once

#include "dptk/nn/cpu/reorder.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Operation reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to) {
    const dnnl::reorder::primitive_desc described(context.engine, from.get_desc(), context.engine,
                                                  to.get_desc(), primitive_attributes());
    return {context, described, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

DPTK_INLINE Converter::Converter(const Context& context, const Layout& from, const Layout& wanted) {
    if (from == wanted) return;
    copy_ = dnnl::memory(wanted, context.engine);
    reorder_ = reorder(context, unbound(context, from), copy_);
}

DPTK_INLINE const dnnl::memory& Converter::operator()(const dnnl::memory& source) {
    if (!reorder_) return source;
    reorder_.set(DNNL_ARG_FROM, source).run();
    return copy_;
}

DPTK_INLINE Activation Converter::operator()(const Activation& source) {
    if (!reorder_) return source;
    return {.memory = (*this)(source.memory), .overwritable = true};
}

}  // namespace DPTK_NAMESPACE::nn::cpu
