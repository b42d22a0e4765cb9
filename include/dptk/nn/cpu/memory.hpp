/// Memory as the oneDNN layers use it: where a network runs, memory objects that stand for one buffer after
/// the other, and what flows between layers.
#pragma once

#include <cstddef>
#include <memory>

#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

/// Where a network runs, and the scratch memory that its primitives, one after the other, share. Points, and
/// is cheap to copy.
struct Context {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::shared_ptr<AlignedArray<std::byte>> scratch = std::make_shared<AlignedArray<std::byte>>();
};

/// Lets `memory` stand for what lies at `data`. oneDNN writes the padding at this occasion, hence the
/// comparison.
inline void rebind_memory(const dnnl::memory& memory, void* data) {
    if (memory.get_data_handle() != data) dnnl::memory(memory).set_data_handle(data);
}

/// A memory object for `layout` that stands for nothing yet.
[[nodiscard]] inline dnnl::memory unbound(const Context& context, const Layout& layout) {
    return {layout, context.engine, DNNL_MEMORY_NONE};
}

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
    Activation in(const dnnl::memory& memory) {
        rebind_memory(memory, storage_.reserve(floats_in(memory)));
        return {.memory = memory, .overwritable = true};
    }

  private:
    AlignedArray<float> storage_;
};

}  // namespace dptk::nn::cpu
