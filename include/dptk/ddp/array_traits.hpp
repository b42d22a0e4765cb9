/// Array layout: where the elements of one array lie in memory. Contiguous ranges need nothing from this
/// header. A specialization of ArrayTraits lets dptk use other arrays, such as the matrices of another
/// library, as parameters. The headers in dptk/adapters specialize ArrayTraits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// Value of ParameterRef::layout for a column-major array, whose first index varies fastest.
inline constexpr std::uint64_t column_major = 1;

/// Returns the value of ParameterRef::layout for a matrix whose columns are contiguous and begin `distance`
/// elements apart, below 2^32, with zeros between them.
[[nodiscard]] constexpr std::uint64_t padded_columns(std::size_t distance) noexcept {
    return std::uint64_t{1} << 63 | std::uint64_t{0xc01} << 32 | distance;
}

namespace detail {

/// Returns `distance` of padded_columns(); 0 for any other layout.
[[nodiscard]] constexpr std::size_t column_distance(std::uint64_t layout) noexcept {
    return layout >> 32 == padded_columns(0) >> 32 ? static_cast<std::size_t>(layout & 0xffff'ffff) : 0;
}

}  // namespace detail

/// The sizes of an array's dimensions, first dimension first: at most 16. Holds them without allocating
/// memory.
class Dimensions {
  public:
    Dimensions() = default;
    /// Holds these sizes: out.shape = {rows, columns}. Throws ArgumentError for more than 16.
    Dimensions(std::initializer_list<std::size_t> sizes);

    /// Adds the size of the next dimension. Throws ArgumentError if there are 16.
    void push_back(std::size_t size);

    void clear() noexcept { count_ = 0; }  ///< Removes all sizes.

    [[nodiscard]] std::size_t size() const noexcept { return count_; }  ///< The number of dimensions.
    /// Returns an iterator to the first dimension.
    [[nodiscard]] const std::size_t* begin() const noexcept { return sizes_.data(); }
    /// Returns an iterator past the last dimension.
    [[nodiscard]] const std::size_t* end() const noexcept { return sizes_.data() + count_; }
    /// Returns dimension `i`, which must be less than size().
    [[nodiscard]] std::size_t operator[](std::size_t i) const noexcept { return sizes_[i]; }
    /// Returns the last dimension. There must be one.
    [[nodiscard]] std::size_t back() const noexcept { return sizes_[count_ - 1]; }

    friend bool operator==(const Dimensions& a, const Dimensions& b) noexcept { return detail::equal(a, b); }

  private:
    std::array<std::size_t, 16> sizes_{};
    std::size_t count_ = 0;
};

/// A non-owning view of an array's elements. The elements are contiguous, or form runs of equal length at
/// equal distances if the array is a part of a larger one: element k lies k / run * stride + k % run
/// elements after the first element. A contiguous array becomes one parameter. Otherwise each run becomes a
/// parameter of its own, named "weight.run[3]".
struct ArrayRef {
    /// Begins at the first element. `count` is the number of elements in all runs. `device` is the memory
    /// in which the elements lie.
    Buffer elements;
    /// The logical shape: rows, then columns, for either order of elements.
    Dimensions shape;
    /// The order of elements, as in ParameterRef: 0 if the last index varies fastest (row-major), or
    /// column_major.
    std::uint64_t layout = 0;
    /// The number of elements in a run, which divides `elements.count`. 0 means that all elements are one
    /// run.
    std::size_t run = 0;
    /// The number of elements from the beginning of a run to the beginning of the next.
    std::size_t stride = 0;

    /// Returns whether all elements are contiguous.
    [[nodiscard]] bool is_contiguous() const noexcept;

    /// Returns the number of contiguous elements: all elements, or those of one run.
    [[nodiscard]] std::size_t run_length() const noexcept { return is_contiguous() ? elements.count : run; }

    /// Returns `length` elements, beginning with element `first`. They must lie in one run.
    [[nodiscard]] Buffer piece(std::size_t first, std::size_t length) const noexcept;
};

/// Describes where the elements of an array lie. A specialization for an array class lets arrays of this
/// class be parameters and gradients, as contiguous ranges are:
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
/// dptk calls array() when a DistributedDataParallel is constructed and in each step, on each rank, since
/// the address may change. The elements must not be const: dptk writes parameters. array() may throw if an
/// array cannot be a parameter: DistributedDataParallel then throws ArgumentError with the exception's text
/// on all ranks. Arrays that are not borrowed ranges are kept by reference and must outlive the training. A
/// specialization takes precedence over the treatment of a class as a contiguous range.
template <class A>
struct ArrayTraits {};

namespace detail {

/// An array type for which ArrayTraits is specialized.
template <class A>
concept KnownArray = requires { typename ArrayTraits<std::remove_cv_t<A>>::Element; };

[[nodiscard]] std::string layout_text(std::uint64_t layout);

/// Returns whether a value and its gradient have equal shapes and orders of elements. Arrays with one
/// dimension match every shape and order.
template <class Value, class Gradient>
[[nodiscard]] bool have_same_order(const Value& value, const Gradient& gradient) {
    if (value.shape.size() == 1 || gradient.shape.size() == 1) return true;
    return gradient.shape == value.shape && gradient.layout == value.layout;
}

/// Throws ArgumentError if a value and its gradient, which have equally many elements, differ in shape or
/// in the order of elements.
template <class Value, class Gradient>
void check_same_order(const std::string& name, const Value& value, const Gradient& gradient) {
    if (have_same_order(value, gradient)) return;
    if (gradient.shape != value.shape)
        throw ArgumentError(text("parameter ", name, " has shape ", shape_text(value.shape),
                                 ", but its gradient has shape ", shape_text(gradient.shape)),
                            {.parameter = name});
    throw ArgumentError(text("parameter ", name, " is ", layout_text(value.layout), ", but its gradient is ",
                             layout_text(gradient.layout)),
                        {.parameter = name});
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/array_traits.ipp"
#endif
