/// Armadillo matrices as parameters and gradients. Mat, Col, Row and Cube are stored by reference; the
/// views that cols(), rows(), submat(), slices() and similar functions return are stored by value. Other
/// expressions do not compile.
///
/// A view with gaps between its elements in memory becomes one parameter for each contiguous run of
/// elements, usually a column, named "weight.run[3]". Nothing is copied, and the memory between the runs is
/// not touched. If gradients are marked as ready, each of these parameters must be marked.
#pragma once

#if !__has_include(<armadillo>)
#error \
    "dptk: <dptk/adapters/armadillo.hpp> needs Armadillo (Debian: libarmadillo-dev) among the include folders"
#endif

#include <armadillo>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class T, class A>
std::type_identity<T> armadillo_element(const arma::Base<T, A>&);

template <class T, class A>
std::type_identity<T> armadillo_element(const arma::BaseCube<T, A>&);

template <class A>
using ArmadilloElement = typename decltype(armadillo_element(std::declval<const A&>()))::type;

/// Matrices, cubes, views and expressions of floating-point numbers.
template <class A>
concept ArmadilloArray = requires { typename ArmadilloElement<A>; } && Element<ArmadilloElement<A>> &&
                         is_floating(dtype_of<ArmadilloElement<A>>);

template <ArmadilloArray A>
inline constexpr bool is_armadillo_matrix = std::is_base_of_v<arma::Mat<ArmadilloElement<A>>, A>;
template <ArmadilloArray A>
inline constexpr bool is_armadillo_cube = std::is_base_of_v<arma::Cube<ArmadilloElement<A>>, A>;
template <ArmadilloArray A>
inline constexpr bool is_armadillo_view = std::is_base_of_v<arma::subview<ArmadilloElement<A>>, A>;
template <ArmadilloArray A>
inline constexpr bool is_armadillo_cube_view = std::is_base_of_v<arma::subview_cube<ArmadilloElement<A>>, A>;

template <class A>
    requires(ArmadilloArray<A> && !is_armadillo_matrix<A> && !is_armadillo_cube<A>)
inline constexpr bool is_reference_like<A> = true;

template <ArmadilloArray A>
inline constexpr bool is_const_of_const<A> = is_armadillo_view<A> || is_armadillo_cube_view<A>;

}  // namespace detail

/// Armadillo's matrices, cubes and views of them, as one parameter, or as one parameter for each contiguous
/// run of elements.
template <detail::ArmadilloArray A>
struct ArrayTraits<A> {
    using Element = detail::ArmadilloElement<A>;  ///< Armadillo's elem_type.

    /// Returns the memory of `array`, divided into contiguous runs if `array` is a view. Throws
    /// ArgumentError for a part of a cube that has only some rows, only some columns and several slices.
    [[nodiscard]] static ArrayRef array(A& array) {
        ArrayRef out = with_shape(array);
        if constexpr (detail::is_armadillo_matrix<A> || detail::is_armadillo_cube<A>) {
            out.elements.data = array.memptr();
        } else if constexpr (detail::is_armadillo_view<A>) {
            out.elements.data = array.n_elem == 0 ? nullptr : array.colptr(0);
            out.run = array.n_cols > 1 ? array.n_rows : array.n_elem;
            out.stride = array.m.n_rows;
        } else if constexpr (detail::is_armadillo_cube_view<A>) {
            out.elements.data = array.n_elem == 0 ? nullptr : array.slice_colptr(0, 0);
            set_runs(array, out);
        } else {
            static_assert(detail::is_armadillo_view<A>,
                          "dptk: this Armadillo expression has no elements in memory that could be written; "
                          "evaluate it into a Mat, Col, Row or Cube that outlives the training");
        }
        return out;
    }

  private:
    [[nodiscard]] static ArrayRef with_shape(const A& array) {
        ArrayRef out;
        if constexpr (requires { array.n_slices; }) {
            out.shape = {array.n_rows, array.n_cols, array.n_slices};
        } else if constexpr (requires { array.n_cols; }) {
            out.shape = {array.n_rows, array.n_cols};
        }
        out.elements.count = 1;
        for (const std::size_t extent : out.shape) out.elements.count *= extent;
        out.elements.dtype = dtype_of<Element>;
        if (detail::count_if(out.shape, [](std::size_t extent) { return extent > 1; }) > 1)
            out.layout = column_major;
        if constexpr (requires { requires A::is_col || A::is_row; }) out.shape = {out.elements.count};
        return out;
    }

    static void set_runs(const A& view, ArrayRef& out) {
        const bool has_all_rows = view.n_rows == view.m.n_rows;
        const bool has_all_columns = view.n_cols == view.m.n_cols;
        if (has_all_rows) {
            out.run = std::size_t{view.n_rows} * view.n_cols;
            out.stride = view.m.n_elem_slice;
        } else if (has_all_columns || view.n_slices == 1) {
            out.run = view.n_rows;
            out.stride = view.m.n_rows;
        } else {
            throw ArgumentError(
                "a part of an Armadillo cube with some of its rows, some of its columns and several slices "
                "cannot be a parameter; pass it slice by slice");
        }
    }
};

}  // namespace DPTK_NAMESPACE
