/// Copies of memory into another layout (reorders): reorder() for a single copy, and Converter for copies
/// that each training step repeats.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/primitive.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns a primitive that copies `from` to `to`, which may have different layouts.
[[nodiscard]] Primitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

/// Converts memory to the layout that a primitive needs.
class Converter {
  public:
    /// Makes a converter that returns its input unchanged.
    Converter() = default;

    /// Makes a converter from the layout `from` to that of `copy`, the memory for the result.
    Converter(const Context& context, const Layout& from, const dnnl::memory& copy);

    /// Returns `source` itself if it already has the needed layout; otherwise the copy.
    const dnnl::memory& operator()(const dnnl::memory& source);

    /// Returns whether the result is a copy.
    [[nodiscard]] bool copies() const noexcept { return static_cast<bool>(reorder_); }

    /// Returns the result of the last call.
    [[nodiscard]] const dnnl::memory& result() const noexcept { return result_; }

  private:
    Primitive reorder_;
    dnnl::memory result_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/converter.ipp"
#endif
