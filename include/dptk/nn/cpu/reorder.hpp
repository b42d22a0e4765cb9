/// Copies of memory into another layout: a single one, and those that a step repeats.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// An operation that copies `from` to `to`, whatever layouts these have.
[[nodiscard]] Operation reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

/// Brings memory into the layout that a primitive wants, again and again, with memory of its own for the
/// copy.
class Converter {
  public:
    /// Returns what it is given.
    Converter() = default;

    Converter(const Context& context, const Layout& from, const Layout& wanted);

    /// `source` itself where it lies as wanted already, else a copy, valid until the next call.
    const dnnl::memory& operator()(const dnnl::memory& source);

    /// The same for an activation. A copy may be overwritten.
    Activation operator()(const Activation& source);

  private:
    Operation reorder_;
    dnnl::memory copy_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/reorder.ipp"
#endif
