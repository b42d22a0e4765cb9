/// Local reductions, dispatched over all operations (sum, product, min, user functions, ...) and dtypes; sums
/// of several vectors use comm/algorithms/vector_sum.hpp. Also scales buffers, and converts between f16, bf16
/// and wider formats. Elements may be unaligned.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "dptk/comm/algorithms/vector_sum.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

inline namespace DPTK_ARITHMETIC {

template <class T>
[[nodiscard]] T load(const void* data, std::size_t index) noexcept {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
void store(void* data, std::size_t index, T value) noexcept {
    std::memcpy(static_cast<std::byte*>(data) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
concept SixteenBitFloat = std::same_as<T, float16> || std::same_as<T, bfloat16>;

template <class T>
concept Real = std::floating_point<T> || SixteenBitFloat<T>;

template <class T>
concept Complex = std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>;

/// The type in which arithmetic on T is done: unsigned for integers, so that overflow wraps and is defined.
template <class T>
struct Arithmetic {
    using type = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

template <class T>
    requires std::floating_point<T> || Complex<T> || std::same_as<T, bool>
struct Arithmetic<T> {
    using type = T;
};

template <SixteenBitFloat T>
struct Arithmetic<T> {
    using type = float;
};

/// Computes into[i] = into[i] op from[i]. For `avg`, only adds; the caller divides after the last rank's
/// elements have been added. Both buffers have the same dtype and count.
void combine(const Buffer& into, const Buffer& from, const Reduction& reduction);

/// Computes to[i] = from[i] * factor for real and complex buffers, in float for f16 and bf16. `from` may be
/// to.data.
void scale(const Buffer& to, const void* from, double factor);

/// Computes data[i] = data[i] / divisor for real and complex buffers, to turn a sum into an average.
void divide(const Buffer& data, double divisor);

/// Returns the dtype of partial results. For f16 and bf16 it is f32, so that the result is rounded only once.
[[nodiscard]] constexpr DType accumulation_dtype(DType dtype) noexcept {
    return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

/// Returns whether a reduction of this dtype requires accumulation_dtype for partial results.
[[nodiscard]] bool needs_wide_accumulation(DType dtype, const Reduction& reduction) noexcept;

/// Copies the elements, and converts them between floating-point dtypes. Throws ArgumentError for other
/// pairs of different dtypes.
void convert(const Buffer& to, const Buffer& from);

/// Computes results[k][i] = sources[0][i] op sources[1][i] op ..., in this order, and divides by job.divisor
/// if the reduction averages. `like` has the dtype of the sources; `result` is the dtype of the results. Both
/// dtypes are equal or, in sums and averages, one is f32 and the other one is f16 or bf16. f16 and bf16 are
/// computed in float and rounded once.
void reduce_together(VectorSum job, const Buffer& like, DType result, const Reduction& reduction);

}  // namespace DPTK_ARITHMETIC

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/local_reduce.ipp"
#endif
