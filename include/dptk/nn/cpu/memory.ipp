#pragma once

#include "dptk/nn/cpu/memory.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE void rebind_memory(const dnnl::memory& memory, void* data) {
    if (memory.get_data_handle() != data) dnnl::memory(memory).set_data_handle(data);
}

DPTK_INLINE dnnl::memory unbound(const Context& context, const Layout& layout) {
    return {layout, context.engine, DNNL_MEMORY_NONE};
}

}  // namespace DPTK_NAMESPACE::nn::cpu
