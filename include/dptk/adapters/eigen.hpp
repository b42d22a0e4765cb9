/// Eigen matrices as parameters and gradients. Matrix and Array are stored by reference; Map, Ref, Block
/// and other views with elements in memory are stored by value. Expressions do not compile.
///
/// A view with gaps between its elements in memory becomes one parameter for each contiguous run of
/// elements, usually a column (or a row, in row-major storage), named "weight.run[3]". Nothing is copied,
/// and the memory between the runs is not touched. If gradients are marked as ready, each of these
/// parameters must be marked.
#pragma once

#if !__has_include(<Eigen/Core>)
#error \
    "dptk: <dptk/adapters/eigen.hpp> needs Eigen 3.4 or newer (Debian: libeigen3-dev) among the include folders"
#endif

#include <Eigen/Core>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

template <>
struct DTypeTraits<Eigen::half> {
    static constexpr DType value = DType::f16;
};

template <>
struct DTypeTraits<Eigen::bfloat16> {
    static constexpr DType value = DType::bf16;
};

namespace detail {

template <class E>
std::type_identity<E> eigen_type(const Eigen::DenseBase<E>&);

/// The matrix, array, view or expression that `A` is, or is derived from.
template <class A>
using EigenType = typename decltype(eigen_type(std::declval<const A&>()))::type;

template <class A>
concept EigenArray = requires { typename EigenType<A>; } && Element<typename EigenType<A>::Scalar> &&
                     is_floating(dtype_of<typename EigenType<A>::Scalar>);

template <EigenArray A>
inline constexpr bool owns_elements = std::is_base_of_v<Eigen::PlainObjectBase<EigenType<A>>, A>;

template <class A>
    requires(EigenArray<A> && !owns_elements<A>)
inline constexpr bool is_reference_like<A> = true;

template <EigenArray A>
inline constexpr bool has_writable_memory =
    (EigenType<A>::Flags & Eigen::DirectAccessBit) != 0 && (EigenType<A>::Flags & Eigen::LvalueBit) != 0;

}  // namespace detail

/// Eigen's matrices, arrays and views of them, as one parameter, or as one parameter for each contiguous
/// run of elements.
template <detail::EigenArray A>
struct ArrayTraits<A> {
    using Element = typename detail::EigenType<A>::Scalar;  ///< Eigen's Scalar.

    /// Returns the memory of `array`, divided into contiguous runs if `array` is a view. Throws
    /// ArgumentError for a matrix with strides in both dimensions.
    [[nodiscard]] static ArrayRef array(A& array) {
        static_assert(detail::has_writable_memory<A>,
                      "dptk: this Eigen expression has no elements in memory that could be written; evaluate "
                      "it into a Matrix or an Array that outlives the training");
        if constexpr (detail::has_writable_memory<A>) {
            const auto size = [](Eigen::Index n) { return static_cast<std::size_t>(n); };
            ArrayRef out;
            out.elements = {array.data(), size(array.size()), dtype_of<Element>};
            out.shape = {size(array.rows()), size(array.cols())};
            if constexpr (A::IsVectorAtCompileTime) out.shape = {size(array.size())};
            const bool is_vector = array.rows() <= 1 || array.cols() <= 1;
            if (!A::IsRowMajor && !is_vector) out.layout = column_major;
            if (array.innerStride() == 1) {
                out.run = size(array.innerSize());
                out.stride = size(array.outerStride());
                return out;
            }
            if (!is_vector && array.outerStride() != array.innerStride() * array.innerSize())
                throw ArgumentError(
                    detail::text("an Eigen matrix with gaps in both dimensions cannot be a parameter: its "
                                 "inner stride is ",
                                 array.innerStride(), ", and its outer stride ", array.outerStride(),
                                 " instead of ", array.innerStride() * array.innerSize()));
            out.run = 1;
            out.stride = size(array.innerSize() > 1 ? array.innerStride() : array.outerStride());
            return out;
        }
    }
};

}  // namespace DPTK_NAMESPACE
