/// std::mdspan on host memory, and types with its interface (Kokkos, CUDA), as parameters and gradients.
/// Views are stored by value. The elements of a view must fill the memory from the first element to the
/// last one without gaps. Any order that strides can describe is allowed, and is compared between ranks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class M>
concept MdspanLike = requires(const M& view, std::size_t r) {
    typename M::element_type;
    requires std::same_as<std::remove_cvref_t<decltype(view.data_handle())>, typename M::element_type*>;
    { view.extents().extent(r) } -> std::convertible_to<std::size_t>;
    { M::rank() } -> std::convertible_to<std::size_t>;
    { view.mapping().is_exhaustive() } -> std::convertible_to<bool>;
    { view.mapping().is_unique() } -> std::convertible_to<bool>;
    { view.mapping().is_strided() } -> std::convertible_to<bool>;
};

template <class M>
concept FloatingMdspan =
    MdspanLike<M> && Element<typename M::element_type> && is_floating(dtype_of<typename M::element_type>) &&
    !std::is_const_v<typename M::element_type>;

template <class M>
    requires FloatingMdspan<M>
inline constexpr bool is_reference_like<M> = true;

}  // namespace detail

/// An mdspan of writable floating-point numbers, as one parameter.
template <detail::FloatingMdspan M>
struct ArrayTraits<M> {
    using Element = typename M::element_type;  ///< The mdspan's element_type.

    /// Returns the memory and the order of the elements. Throws ArgumentError if there are gaps between the
    /// elements, if one element has several indices, or if the layout has no strides.
    [[nodiscard]] static ArrayRef array(const M& view) {
        const auto& mapping = view.mapping();
        if (!mapping.is_exhaustive() || !mapping.is_unique() || !mapping.is_strided())
            throw ArgumentError(
                "an mdspan with gaps, overlapping elements or no strides cannot be a parameter; pass its "
                "contiguous parts, or the whole array");
        ArrayRef out;
        out.elements = {view.data_handle(), 1, dtype_of<Element>};
        for (std::size_t r = 0; r < M::rank(); ++r) {
            out.shape.push_back(static_cast<std::size_t>(view.extents().extent(r)));
            out.elements.count *= out.shape.back();
        }
        out.layout = layout_of(view, out.shape);
        return out;
    }

  private:
    [[nodiscard]] static std::uint64_t layout_of(const M& view, const Dimensions& shape) {
        Dimensions strides;
        for (std::size_t r = 0; r < shape.size(); ++r) {
            if (shape[r] <= 1) continue;  // the stride of a dimension of size 1 has no meaning
            if constexpr (M::rank() > 0)
                strides.push_back(static_cast<std::size_t>(view.mapping().stride(r)));
        }
        if (detail::contains(shape, std::size_t{0}) ||
            std::is_sorted(strides.begin(), strides.end(), std::greater<>()))
            return 0;
        if (std::is_sorted(strides.begin(), strides.end())) return column_major;
        return detail::fnv1a(std::string_view(reinterpret_cast<const char*>(strides.begin()),
                                              strides.size() * sizeof(std::size_t)));
    }
};

}  // namespace DPTK_NAMESPACE
