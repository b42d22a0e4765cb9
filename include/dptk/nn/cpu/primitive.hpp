/// oneDNN primitives with their arguments, created once and run many times.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// A primitive with its arguments; empty if default-constructed. Runs through oneDNN's C interface, since
/// the C++ interface accepts arguments as a map and copies the map on each call.
class Primitive {
  public:
    Primitive() = default;

    Primitive(const Context& context, const dnnl::primitive_desc_base& described,
              std::initializer_list<std::pair<int, dnnl::memory>> arguments);

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

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/primitive.ipp"
#endif
