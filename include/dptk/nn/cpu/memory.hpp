/// Memory of the oneDNN layers: engine and stream, and memory objects that are bound to one address after the
/// other.
#pragma once

#include <cstddef>
#include <memory>

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

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/memory.ipp"
#endif
