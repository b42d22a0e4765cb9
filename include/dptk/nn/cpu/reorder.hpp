/// Copies of memory into another layout (reorders): reorder() for a single copy, and Converter for copies
/// that each training step repeats.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/operation.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns an operation that copies `from` to `to`, which may have different layouts.
[[nodiscard]] Operation reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

/// Converts memory to the layout that a primitive needs. Owns the memory of the copy.
class Converter {
  public:
    /// Makes a converter that returns its input unchanged.
    Converter() = default;

    Converter(const Context& context, const Layout& from, const Layout& wanted);

    /// Returns `source` itself if it already has the needed layout; otherwise a copy, valid until the next
    /// call.
    const dnnl::memory& operator()(const dnnl::memory& source);

    /// Converts an activation. If a copy is needed, the copy is overwritable.
    Activation operator()(const Activation& source);

  private:
    Operation reorder_;
    dnnl::memory copy_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/reorder.ipp"
#endif
