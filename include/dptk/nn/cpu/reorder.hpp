/// Copies of memory into another layout: a single one, and those that a step repeats.
#pragma once

#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"

namespace dptk::nn::cpu {

/// An operation that copies `from` to `to`, whatever layouts these have.
[[nodiscard]] inline Operation reorder(const Context& context, const dnnl::memory& from,
                                       const dnnl::memory& to) {
    const dnnl::reorder::primitive_desc described(context.engine, from.get_desc(), context.engine,
                                                  to.get_desc(), primitive_attributes());
    return {context, described, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

/// Brings memory into the layout that a primitive wants, again and again, with memory of its own for the
/// copy.
class Converter {
  public:
    /// Returns what it is given.
    Converter() = default;

    Converter(const Context& context, const Layout& from, const Layout& wanted) {
        if (from == wanted) return;
        copy_ = dnnl::memory(wanted, context.engine);
        reorder_ = reorder(context, unbound(context, from), copy_);
    }

    /// `source` itself where it lies as wanted already, else a copy, valid until the next call.
    const dnnl::memory& operator()(const dnnl::memory& source) {
        if (!reorder_) return source;
        reorder_.set(DNNL_ARG_FROM, source).run();
        return copy_;
    }

    /// The same for an activation. A copy may be overwritten.
    Activation operator()(const Activation& source) {
        if (!reorder_) return source;
        return {.memory = (*this)(source.memory), .overwritable = true};
    }

  private:
    Operation reorder_;
    dnnl::memory copy_;
};

}  // namespace dptk::nn::cpu
