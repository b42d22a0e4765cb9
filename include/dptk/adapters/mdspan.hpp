/// std::mdspan on host memory, and whatever else has its interface (Kokkos's, CUDA's), as parameters and
/// gradients. Views are kept by value. Their elements must be all of the memory between the first and the
/// last of them; the order may be any that strides describe, and is compared between ranks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dptk/core/config.hpp"
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

/// An mdspan of floating-point numbers that may be written, as one parameter.
template <detail::FloatingMdspan M>
struct ArrayTraits<M> {
    using Element = typename M::element_type;  ///< The mdspan's element_type.

    /// Where the elements lie, and in which order. Throws ArgumentError where there is other memory between
    /// them, where one stands for several indices, or where there are no strides.
    [[nodiscard]] static ArrayRef array(const M& view) {
        const auto& mapping = view.mapping();
        if (!mapping.is_exhaustive() || !mapping.is_unique() || !mapping.is_strided())
            throw ArgumentError(
                "a parameter is an mdspan whose elements are not all of the memory from the first to the "
                "last; "
                "give its parts, or the whole of which it is a part");
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
    using Sizes = std::vector<std::size_t>;

    [[nodiscard]] static std::uint64_t layout_of(const M& view, const Sizes& shape) {
        Sizes strides;
        for (std::size_t r = 0; r < shape.size(); ++r) {
            if (shape[r] <= 1) continue;  // its stride says nothing
            if constexpr (M::rank() > 0)
                strides.push_back(static_cast<std::size_t>(view.mapping().stride(r)));
        }
        if (std::ranges::find(shape, std::size_t{0}) != shape.end() ||
            std::ranges::is_sorted(strides, std::greater{}))
            return 0;
        if (std::ranges::is_sorted(strides)) return column_major;
        return detail::fnv1a(std::string_view(reinterpret_cast<const char*>(strides.data()),
                                              strides.size() * sizeof(std::size_t)));
    }
};

}  // namespace DPTK_NAMESPACE
