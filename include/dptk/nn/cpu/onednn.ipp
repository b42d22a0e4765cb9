#pragma once

#include "dptk/nn/cpu/onednn.hpp"

#include <string>
#include <vector>

#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"

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

DPTK_INLINE Dims dims_of(const Layout& layout) {
#if DNNL_VERSION_MAJOR >= 3
    return layout.get_dims();
#else
    return layout.dims();
#endif
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

DPTK_INLINE dnnl::sum::primitive_desc describe_sum(const dnnl::engine& engine, const Layout& sum,
                                                   const Layout& a, const Layout& b) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, sum, {1.0F, 1.0F}, {a, b}, primitive_attributes()};
#else
    return {sum, {1.0F, 1.0F}, {a, b}, engine, primitive_attributes()};
#endif
}

/// Returns all numbers that distinguish layouts of one element type.
[[nodiscard]] DPTK_INLINE std::vector<std::int64_t> layout_numbers(const Layout& layout) {
#if DNNL_VERSION_MAJOR >= 3
    std::vector<std::int64_t> numbers{static_cast<std::int64_t>(layout.get_format_kind())};
    for (const Dims& part : {layout.get_dims(), layout.get_padded_dims(), layout.get_strides(),
                             layout.get_inner_blks(), layout.get_inner_idxs()}) {
        numbers.push_back(static_cast<std::int64_t>(part.size()));
        numbers.insert(numbers.end(), part.begin(), part.end());
    }
#else
    const dnnl_memory_desc_t& data = layout.data;
    const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
    std::vector<std::int64_t> numbers{data.format_kind, data.ndims, blocking.inner_nblks};
    for (int i = 0; i < data.ndims; ++i)
        numbers.insert(numbers.end(), {data.dims[i], data.padded_dims[i], blocking.strides[i]});
    for (int i = 0; i < blocking.inner_nblks; ++i)
        numbers.insert(numbers.end(), {blocking.inner_blks[i], blocking.inner_idxs[i]});
#endif
    return numbers;
}

DPTK_INLINE std::uint64_t layout_hash(const Layout& layout) {
    if (layout == row_major_layout(dims_of(layout))) return 0;
    std::string numbers;
    for (const std::int64_t number : layout_numbers(layout)) numbers += dptk::detail::text(number, ' ');
    const std::uint64_t hash = dptk::detail::fnv1a(numbers);
    return hash == 0 ? 1 : hash;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
