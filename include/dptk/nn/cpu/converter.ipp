#pragma once

#include "dptk/nn/cpu/converter.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Primitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to) {
    const dnnl::reorder::primitive_desc described(context.engine, from.get_desc(), context.engine,
                                                  to.get_desc(), primitive_attributes());
    return {context, described, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

DPTK_INLINE Converter::Converter(const Context& context, const Layout& from, const dnnl::memory& copy)
    : reorder_(reorder(context, unbound(context, from), copy)), result_(copy) {}

DPTK_INLINE const dnnl::memory& Converter::operator()(const dnnl::memory& source) {
    if (reorder_) {
        reorder_.set(DNNL_ARG_FROM, source).run();
    } else {
        result_ = source;
    }
    return result_;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
