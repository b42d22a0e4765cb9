/// A compatibility layer over oneDNN 2.6 and 3.x: describing primitives, and querying memory layouts. No
/// other header of dptk depends on oneDNN's version.
#pragma once

#if !__has_include(<oneapi/dnnl/dnnl.hpp>)
#error "dptk/nn/cpu needs oneDNN 2.6 or newer: install libdnnl-dev (Debian, Ubuntu) or onednn (Conan, vcpkg)."
#endif

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/array_traits.hpp"

#if DNNL_VERSION_MAJOR < 2 || (DNNL_VERSION_MAJOR == 2 && DNNL_VERSION_MINOR < 6)
#error "dptk/nn/cpu needs oneDNN 2.6 or newer."
#endif

namespace DPTK_NAMESPACE::nn::cpu {

using Dims = dnnl::memory::dims;
using Layout = dnnl::memory::desc;

/// The operation that a primitive applies to its results before it writes them.
enum class PostOp { none, relu };

/// Returns the attributes of a primitive: `post_op`, and scratch memory that dptk provides. By default,
/// scratch memory belongs to the thread that created the primitive, but a network may be made on one thread
/// and trained on another.
[[nodiscard]] inline dnnl::primitive_attr primitive_attributes(PostOp post_op = PostOp::none) {
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

/// A function of oneDNN, with its parameters.
struct PointwiseAlgorithm {
    dnnl::algorithm algorithm;
    float alpha = 0;
    float beta = 0;
};

#if DNNL_VERSION_MAJOR >= 3
using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;
#else
using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;
#endif

/// oneDNN 2 needs the shift in backward, although it has no effect there; in oneDNN 3 it is no argument, and
/// 3.2 refuses it.
inline constexpr bool batch_norm_backward_reads_shift = DNNL_VERSION_MAJOR < 3;

template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, PostOp post_op,
                                            const Arguments&... arguments) {
    if constexpr (DNNL_VERSION_MAJOR >= 3)
        return {engine, arguments..., primitive_attributes(post_op)};
    else
        return {typename Primitive::desc(arguments...), primitive_attributes(post_op), engine};
}

template <class Primitive, class Hint, class... Arguments>
typename Primitive::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& forward,
                                                     const Arguments&... arguments) {
    if constexpr (DNNL_VERSION_MAJOR >= 3)
        return {engine, arguments..., forward, primitive_attributes()};
    else
        return {typename Primitive::desc(arguments...), primitive_attributes(), engine, forward};
}

/// Returns what `describe(layouts...)` returns for a source and a result that both have the layout `data`.
/// oneDNN 2 accepts it only once.
template <class Describe>
[[nodiscard]] auto describe_with(const Layout& data, Describe&& describe) {
    if constexpr (DNNL_VERSION_MAJOR >= 3)
        return describe(data, data);
    else
        return describe(data);
}

[[nodiscard]] inline auto describe_pointwise(const dnnl::engine& engine, const PointwiseAlgorithm& function,
                                             const Layout& data) {
    return describe_with(data, [&](const auto&... layouts) {
        return describe<dnnl::eltwise_forward>(engine, PostOp::none, dnnl::prop_kind::forward_training,
                                               function.algorithm, layouts..., function.alpha, function.beta);
    });
}

[[nodiscard]] inline auto describe_pointwise_backward(const dnnl::engine& engine,
                                                      const PointwiseAlgorithm& function, const Layout& data,
                                                      const dnnl::eltwise_forward::primitive_desc& forward) {
    return describe_with(data, [&](const auto&... layouts) {
        return describe_backward<dnnl::eltwise_backward>(engine, forward, function.algorithm, data,
                                                         layouts..., function.alpha, function.beta);
    });
}

[[nodiscard]] inline auto describe_batch_norm(const dnnl::engine& engine, const Layout& data, float eps,
                                              dnnl::normalization_flags flags) {
    return describe_with(data, [&](const auto&... layouts) {
        return describe<dnnl::batch_normalization_forward>(
            engine, PostOp::none, dnnl::prop_kind::forward_training, layouts..., eps, flags);
    });
}

[[nodiscard]] inline auto describe_batch_norm_backward(
    const dnnl::engine& engine, const Layout& data, float eps, dnnl::normalization_flags flags,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
    return describe_with(data, [&](const auto&... layouts) {
        return describe_backward<dnnl::batch_normalization_backward>(
            engine, forward, dnnl::prop_kind::backward, data, layouts..., eps, flags);
    });
}

/// Returns whether oneDNN has only its reference loops for a primitive.
[[nodiscard]] inline bool is_slow(const dnnl::primitive_desc_base& described) {
    return std::string_view(described.impl_info_str()).starts_with("ref");
}

/// Returns the description of a primitive that `wanted()` makes. If oneDNN has only its reference loops for
/// that primitive, which are hundreds of times slower, returns the description that `free()` makes, which
/// gives oneDNN more choice.
template <class Wanted, class Free>
[[nodiscard]] auto describe_fast(Wanted&& wanted, Free&& free) {
    const auto described = wanted();
    return is_slow(described) ? free() : described;
}

[[nodiscard]] inline Dims dims_of(const Layout& layout) {
#if DNNL_VERSION_MAJOR >= 3
    return layout.get_dims();
#else
    return layout.dims();
#endif
}

using ElementType = dnnl::memory::data_type;

/// Returns a layout with the dimensions `dims`, in an order that oneDNN may choose.
[[nodiscard]] inline Layout any_layout(const Dims& dims, ElementType type = ElementType::f32) {
    return {dims, type, dnnl::memory::format_tag::any};
}

/// Returns a layout with the dimensions of `layout`, in an order that oneDNN may choose.
[[nodiscard]] inline Layout any_order(const Layout& layout, ElementType type = ElementType::f32) {
    return any_layout(dims_of(layout), type);
}

/// Returns whether the processor computes products of bf16 numbers.
[[nodiscard]] inline bool has_bf16_products() {
    constexpr int wanted = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

[[nodiscard]] inline Layout row_major_layout(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    return {dims, dnnl::memory::data_type::f32, strides};
}

[[nodiscard]] inline std::size_t floats_in(const Layout& layout) {
    return layout.get_size() / sizeof(float);
}

/// Returns whether the layout has more elements than its dimensions.
[[nodiscard]] inline bool has_padding(const Layout& layout) {
    std::size_t elements = 1;
    for (const dnnl::memory::dim dim : dims_of(layout)) elements *= static_cast<std::size_t>(dim);
    return floats_in(layout) != elements;
}

/// Describes the sum of two values of the layouts `a` and `b`.
[[nodiscard]] inline dnnl::sum::primitive_desc describe_sum(const dnnl::engine& engine, const Layout& sum,
                                                            const Layout& a, const Layout& b) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, sum, {1.0F, 1.0F}, {a, b}, primitive_attributes()};
#else
    return {sum, {1.0F, 1.0F}, {a, b}, engine, primitive_attributes()};
#endif
}

/// Returns all numbers that distinguish layouts of one element type.
[[nodiscard]] inline std::vector<std::int64_t> layout_numbers(const Layout& layout) {
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

/// Returns the layout of a matrix whose columns begin `distance` elements apart.
[[nodiscard]] inline Layout columns_layout(const Dims& dims, dnnl::memory::dim distance) {
    return {dims, ElementType::f32, Dims{1, distance}};
}

/// Returns 0 for row-major, and padded_columns() for such a layout; otherwise a hash that is equal for equal
/// layouts, on any machine.
[[nodiscard]] inline std::uint64_t layout_hash(const Layout& layout) {
    const Dims dims = dims_of(layout);
    if (layout == row_major_layout(dims)) return 0;
    if (dims.size() == 2) {
        const auto distance = static_cast<dnnl::memory::dim>(floats_in(layout)) / dims[1];
        if (distance > dims[0] && layout == columns_layout(dims, distance))
            return padded_columns(static_cast<std::size_t>(distance));
    }
    std::string numbers;
    for (const std::int64_t number : layout_numbers(layout)) numbers += dptk::detail::text(number, ' ');
    const std::uint64_t hash = dptk::detail::fnv1a(numbers);
    return hash == 0 ? 1 : hash;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
