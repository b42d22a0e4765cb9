#pragma once

#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE dnnl::primitive_attr primitive_attributes(PostOp post_op) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (post_op == PostOp::none) return attributes;
    dnnl::post_ops relu;
#if DNNL_VERSION_MAJOR >= 3
    relu.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#else
    relu.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#endif
    attributes.set_post_ops(relu);
    return attributes;
}

DPTK_INLINE Layout any_layout(const Dims& dims) {
    return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

DPTK_INLINE Layout any_order(const Layout& layout) {
    return any_layout(dims_of(layout));
}

DPTK_INLINE Layout row_major_layout(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    return {dims, dnnl::memory::data_type::f32, strides};
}

DPTK_INLINE std::size_t floats_in(const Layout& layout) {
    return layout.get_size() / sizeof(float);
}

DPTK_INLINE bool has_padding(const Layout& layout) {
    std::size_t elements = 1;
    for (const dnnl::memory::dim dim : dims_of(layout)) elements *= static_cast<std::size_t>(dim);
    return floats_in(layout) != elements;
}

DPTK_INLINE std::uint64_t layout_hash(const Layout& layout) {
    if (layout == row_major_layout(dims_of(layout))) return 0;
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::int64_t number : layout_numbers(layout)) {
        for (int shift = 0; shift < 64; shift += 8) {
            hash ^= static_cast<std::uint64_t>(number) >> shift & 0xff;
            hash *= 0x100000001b3;
        }
    }
    return hash == 0 ? 1 : hash;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
