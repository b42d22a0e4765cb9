/// How one array lies in memory. Contiguous ranges need nothing of this; ArrayTraits teaches dptk arrays that
/// are none, such as a matrix of another library. The headers of dptk/adapters specialise it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// What ParameterRef::layout is for an array whose first index runs fastest.
inline constexpr std::uint64_t column_major = 1;

/// Elements in memory: all of them one behind the other or, in a part of a larger array, in runs of equal
/// length and at equal distances: element k is k / run * stride + k % run elements behind the first. One run
/// is one parameter; of several, each is a parameter of its own, "weight.run[3]". Points, and owns nothing.
struct ArrayRef {
    /// From the first one on; `count` is that of all runs together. Its `device` is where they lie.
    Buffer elements;
    std::vector<std::size_t> shape;  ///< The logical one: rows, then columns, in either order of elements.
    /// The order of elements, as in ParameterRef: 0 where the last index runs fastest, or column_major.
    std::uint64_t layout = 0;
    /// Elements in a run, of which `elements.count` is a multiple. 0: all are one run.
    std::size_t run = 0;
    std::size_t stride = 0;  ///< Elements from the beginning of a run to that of the next.

    /// Whether all elements lie one behind the other.
    [[nodiscard]] bool is_contiguous() const noexcept;

    /// How many elements lie one behind the other: all, or those of a run.
    [[nodiscard]] std::size_t run_length() const noexcept { return is_contiguous() ? elements.count : run; }

    /// `length` elements from element `first` on, which must lie in one run.
    [[nodiscard]] Buffer piece(std::size_t first, std::size_t length) const noexcept;
};

/// Says where the elements of an array lie. Specialised for a class of arrays, it makes these parameters and
/// gradients, as contiguous ranges are:
///
/// ```cpp
/// template <>
/// struct dptk::ArrayTraits<Grid> {
///     using Element = float;  // float, double, or a 16-bit format that DTypeTraits knows
///
///     static dptk::ArrayRef array(Grid& grid) {
///         dptk::ArrayRef out;
///         out.elements = {grid.cells(), grid.rows() * grid.columns(), dptk::dtype_of<float>};
///         out.shape = {grid.rows(), grid.columns()};
///         return out;
///     }
/// };
/// ```
///
/// array() reads the address anew each time: at construction, and in each step of each rank by itself. The
/// address is not const: an array that cannot be written is no parameter. It may throw for an array that
/// cannot be one: DistributedDataParallel then throws ArgumentError with that text on all ranks. Arrays that
/// are no borrowed ranges are kept by reference, and outlive the training. A contiguous range that has a
/// specialisation is taken as that says.
template <class A>
struct ArrayTraits {};

namespace detail {

/// An array that a specialisation of ArrayTraits knows.
template <class A>
concept KnownArray = requires { typename ArrayTraits<std::remove_cv_t<A>>::Element; };

[[nodiscard]] std::string layout_text(std::uint64_t layout);

/// Throws ArgumentError where a value's elements and its gradient's, as many, are in different orders. Those
/// of one dimension are in any.
template <class Value, class Gradient>
void check_same_order(const std::string& name, const Value& value, const Gradient& gradient) {
    if (value.shape.size() == 1 || gradient.shape.size() == 1) return;
    if (gradient.shape != value.shape)
        throw ArgumentError(text("parameter ", name, " is ", shape_text(value.shape), ", but its gradient ",
                                 shape_text(gradient.shape)));
    if (gradient.layout != value.layout)
        throw ArgumentError(text("parameter ", name, " is ", layout_text(value.layout), ", but its gradient ",
                                 layout_text(gradient.layout)));
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/array_traits.ipp"
#endif
