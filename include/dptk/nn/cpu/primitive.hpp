/// oneDNN primitives with their arguments, created once and run many times, and the memory that they use.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// The engine and stream of a network, and the scratch memory that its primitives share, since they run one
/// after the other. Copies are cheap and refer to the same objects.
struct Context {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::shared_ptr<AlignedArray<std::byte>> scratch = std::make_shared<AlignedArray<std::byte>>();
};

/// Makes `memory` refer to `data`. Does nothing if `memory` already refers to it, since oneDNN's call may
/// also write zeros to the padding.
void rebind_memory(const dnnl::memory& memory, void* data);

/// Returns a memory object for `layout` that does not refer to data yet.
[[nodiscard]] dnnl::memory unbound(const Context& context, const Layout& layout);

/// A primitive with its arguments; empty if default-constructed. Runs through oneDNN's C interface, since
/// the C++ interface accepts arguments as a map and copies the map on each call.
class Primitive {
  public:
    Primitive() = default;

    Primitive(const Context& context, const dnnl::primitive_desc_base& described,
              std::initializer_list<std::pair<int, dnnl::memory>> arguments = {});

    explicit operator bool() const noexcept { return shared_scratch_ != nullptr; }

    /// Sets the argument `index`, or replaces it by another memory object of the same layout.
    Primitive& set(int index, const dnnl::memory& memory);

    /// Runs the primitive and waits for its results.
    void run();

  private:
    dnnl::primitive primitive_;
    dnnl::stream stream_;
    std::vector<dnnl_exec_arg_t> arguments_;
    /// The memory objects that arguments_ point to, in the same order.
    std::vector<dnnl::memory> kept_;
    std::shared_ptr<AlignedArray<std::byte>> shared_scratch_;
    dnnl::memory scratch_;
    std::size_t scratch_bytes_ = 0;
};

/// Returns a primitive that copies `from` to `to`, which may have different layouts.
[[nodiscard]] Primitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to);

/// Converts memory to the layout that a primitive needs. By default, returns its input unchanged.
class Converter {
  public:
    Converter() = default;

    /// Makes a converter from the layout `from` to that of `copy`, the memory for the result.
    Converter(const Context& context, const Layout& from, const dnnl::memory& copy)
        : reorder_(reorder(context, unbound(context, from), copy)), result_(copy) {}

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
#include "dptk/nn/cpu/primitive.ipp"
#endif
