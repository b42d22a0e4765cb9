/// A compatibility layer over oneDNN 2.6 and 3.x: describing primitives, and querying memory layouts. No
/// other header of dptk depends on oneDNN's version.
#pragma once

#if !__has_include(<oneapi/dnnl/dnnl.hpp>)
#error "dptk/nn/cpu needs oneDNN 2.6 or newer: install libdnnl-dev (Debian, Ubuntu) or onednn (Conan, vcpkg)."
#endif

#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

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
[[nodiscard]] dnnl::primitive_attr primitive_attributes(PostOp post_op = PostOp::none);

/// A function of oneDNN, with its parameters.
struct PointwiseAlgorithm {
    dnnl::algorithm algorithm;
    float alpha = 0;
    float beta = 0;
};

#if DNNL_VERSION_MAJOR >= 3

using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;

template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, PostOp post_op,
                                            const Arguments&... arguments) {
    return {engine, arguments..., primitive_attributes(post_op)};
}

template <class Primitive, class Hint, class... Arguments>
typename Primitive::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& forward,
                                                     const Arguments&... arguments) {
    return {engine, arguments..., forward, primitive_attributes()};
}

[[nodiscard]] inline auto describe_pointwise(const dnnl::engine& engine, const PointwiseAlgorithm& function,
                                             const Layout& data) {
    return describe<dnnl::eltwise_forward>(engine, PostOp::none, dnnl::prop_kind::forward_training,
                                           function.algorithm, data, data, function.alpha, function.beta);
}

[[nodiscard]] inline auto describe_pointwise_backward(const dnnl::engine& engine,
                                                      const PointwiseAlgorithm& function, const Layout& data,
                                                      const dnnl::eltwise_forward::primitive_desc& forward) {
    return describe_backward<dnnl::eltwise_backward>(engine, forward, function.algorithm, data, data, data,
                                                     function.alpha, function.beta);
}

[[nodiscard]] inline auto describe_batch_norm(const dnnl::engine& engine, const Layout& data, float eps,
                                              dnnl::normalization_flags flags) {
    return describe<dnnl::batch_normalization_forward>(
        engine, PostOp::none, dnnl::prop_kind::forward_training, data, data, eps, flags);
}

[[nodiscard]] inline auto describe_batch_norm_backward(
    const dnnl::engine& engine, const Layout& data, float eps, dnnl::normalization_flags flags,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
    return describe_backward<dnnl::batch_normalization_backward>(engine, forward, dnnl::prop_kind::backward,
                                                                 data, data, data, eps, flags);
}

[[nodiscard]] inline dnnl::sum::primitive_desc describe_sum(const dnnl::engine& engine, const Layout& sum,
                                                            const std::vector<Layout>& terms) {
    return {engine, sum, std::vector<float>(terms.size(), 1.0F), terms, primitive_attributes()};
}

[[nodiscard]] inline Dims dims_of(const Layout& layout) {
    return layout.get_dims();
}

/// Returns all numbers that distinguish layouts of one element type.
[[nodiscard]] inline std::vector<std::int64_t> layout_numbers(const Layout& layout) {
    std::vector<std::int64_t> numbers{static_cast<std::int64_t>(layout.get_format_kind())};
    for (const Dims& part : {layout.get_dims(), layout.get_padded_dims(), layout.get_strides(),
                             layout.get_inner_blks(), layout.get_inner_idxs()}) {
        numbers.push_back(static_cast<std::int64_t>(part.size()));
        numbers.insert(numbers.end(), part.begin(), part.end());
    }
    return numbers;
}

#else

using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;

template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, PostOp post_op,
                                            const Arguments&... arguments) {
    return {typename Primitive::desc(arguments...), primitive_attributes(post_op), engine};
}

template <class Primitive, class Hint, class... Arguments>
typename Primitive::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& forward,
                                                     const Arguments&... arguments) {
    return {typename Primitive::desc(arguments...), primitive_attributes(), engine, forward};
}

[[nodiscard]] inline auto describe_pointwise(const dnnl::engine& engine, const PointwiseAlgorithm& function,
                                             const Layout& data) {
    return describe<dnnl::eltwise_forward>(engine, PostOp::none, dnnl::prop_kind::forward_training,
                                           function.algorithm, data, function.alpha, function.beta);
}

[[nodiscard]] inline auto describe_pointwise_backward(const dnnl::engine& engine,
                                                      const PointwiseAlgorithm& function, const Layout& data,
                                                      const dnnl::eltwise_forward::primitive_desc& forward) {
    return describe_backward<dnnl::eltwise_backward>(engine, forward, function.algorithm, data, data,
                                                     function.alpha, function.beta);
}

[[nodiscard]] inline auto describe_batch_norm(const dnnl::engine& engine, const Layout& data, float eps,
                                              dnnl::normalization_flags flags) {
    return describe<dnnl::batch_normalization_forward>(engine, PostOp::none,
                                                       dnnl::prop_kind::forward_training, data, eps, flags);
}

[[nodiscard]] inline auto describe_batch_norm_backward(
    const dnnl::engine& engine, const Layout& data, float eps, dnnl::normalization_flags flags,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
    return describe_backward<dnnl::batch_normalization_backward>(engine, forward, dnnl::prop_kind::backward,
                                                                 data, data, eps, flags);
}

[[nodiscard]] inline dnnl::sum::primitive_desc describe_sum(const dnnl::engine& engine, const Layout& sum,
                                                            const std::vector<Layout>& terms) {
    return {sum, std::vector<float>(terms.size(), 1.0F), terms, engine, primitive_attributes()};
}

[[nodiscard]] inline Dims dims_of(const Layout& layout) {
    return layout.dims();
}

/// Returns all numbers that distinguish layouts of one element type.
[[nodiscard]] inline std::vector<std::int64_t> layout_numbers(const Layout& layout) {
    const dnnl_memory_desc_t& data = layout.data;
    const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
    std::vector<std::int64_t> numbers{data.format_kind, data.ndims, blocking.inner_nblks};
    for (int i = 0; i < data.ndims; ++i)
        numbers.insert(numbers.end(), {data.dims[i], data.padded_dims[i], blocking.strides[i]});
    for (int i = 0; i < blocking.inner_nblks; ++i)
        numbers.insert(numbers.end(), {blocking.inner_blks[i], blocking.inner_idxs[i]});
    return numbers;
}

#endif

/// Returns the description of a primitive that `wanted()` makes. If oneDNN has only its reference loops for
/// that primitive, which are hundreds of times slower, returns the description that `free()` makes, which
/// gives oneDNN more choice.
template <class Wanted, class Free>
[[nodiscard]] auto describe_fast(Wanted&& wanted, Free&& free) {
    const auto described = wanted();
    return std::string_view(described.impl_info_str()).starts_with("ref") ? free() : described;
}

/// Returns a layout with the dimensions `dims`, in an order that oneDNN may choose.
[[nodiscard]] Layout any_layout(const Dims& dims);

/// Returns a layout with the dimensions of `layout`, in an order that oneDNN may choose.
[[nodiscard]] Layout any_order(const Layout& layout);

[[nodiscard]] Layout row_major_layout(const Dims& dims);

[[nodiscard]] std::size_t floats_in(const Layout& layout);

/// Returns whether the layout has more elements than its dimensions.
[[nodiscard]] bool has_padding(const Layout& layout);

/// Returns 0 for row-major; otherwise a hash (FNV-1a) that is equal for equal layouts, on any machine.
[[nodiscard]] std::uint64_t layout_hash(const Layout& layout);

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/onednn.ipp"
#endif
