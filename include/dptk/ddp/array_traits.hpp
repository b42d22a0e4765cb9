/// How one array lies in memory. Contiguous ranges need nothing of this; ArrayTraits teaches dptk arrays that
/// are none, such as a matrix of another library. The headers of dptk/adapters specialise it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// What ParameterRef::layout is for an array whose first index runs fastest.
inline constexpr std::uint64_t column_major = 1;

/// Elements in memory: all of them one behind the other or, in a part of a larger array, in runs of equal
/// length and at equal distances. Points, and owns nothing.
struct ArrayRef {
    /// From the first one on; `count` is that of all runs together.
    Buffer elements;
    std::vector<std::size_t> shape;
    /// As in ParameterRef.
    std::uint64_t layout = 0;
    /// Elements in a run, and from the beginning of one to that of the next. 0: all are one run.
    std::size_t run = 0;
    std::size_t stride = 0;

    [[nodiscard]] bool is_contiguous() const noexcept {
        return run == 0 || run >= elements.count || run == stride;
    }

    /// Elements that lie one behind the other.
    [[nodiscard]] std::size_t run_length() const noexcept { return is_contiguous() ? elements.count : run; }

    /// `length` elements from element `first` on, which must lie in one run.
    [[nodiscard]] Buffer piece(std::size_t first, std::size_t length) const noexcept {
        const std::size_t place = is_contiguous() ? first : first / run * stride + first % run;
        return elements.slice(place, length);
    }
};

/// Specialised for a class of arrays: `using Element = float;` and `static ArrayRef array(A&)`, which reads
/// the address anew each time. The address is not const: an array that cannot be written is no parameter.
template <class A>
struct ArrayTraits {};

namespace detail {

/// An array that a specialisation of ArrayTraits knows.
template <class A>
concept KnownArray = requires { typename ArrayTraits<std::remove_cv_t<A>>::Element; };

[[nodiscard]] inline std::string layout_text(std::uint64_t layout) {
    if (layout == 0) return "row-major";
    return layout == column_major ? std::string("column-major") : text("in layout ", layout);
}

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

}  // namespace dptk
