/// Memory as the oneDNN layers use it: where a network runs, memory objects that stand for one buffer after
/// the other, and what flows between layers.
#pragma once

#include <cstddef>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Where a network runs, and the scratch memory that its primitives, one after the other, share. Points, and
/// is cheap to copy.
struct Context {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::shared_ptr<AlignedArray<std::byte>> scratch = std::make_shared<AlignedArray<std::byte>>();
};

/// Lets `memory` stand for what lies at `data`. oneDNN writes the padding at this occasion, hence the
/// comparison.
void rebind_memory(const dnnl::memory& memory, void* data);

/// A memory object for `layout` that stands for nothing yet.
[[nodiscard]] dnnl::memory unbound(const Context& context, const Layout& layout);

/// A batch between layers, its dimensions [n, ...], in any layout. Points, and owns nothing.
struct Activation {
    dnnl::memory memory;
    /// Whether the layer that gets it may write its result over it; not so for the user's memory.
    bool overwritable = false;

    [[nodiscard]] Layout layout() const { return memory.get_desc(); }
};

/// The memory of a layer's results, which the plans for all batch sizes share.
class Results {
  public:
    /// An activation in `memory`, which is made to lie here.
    Activation in(const dnnl::memory& memory);

  private:
    AlignedArray<float> storage_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/memory.ipp"
#endif
