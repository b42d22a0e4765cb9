/// The arithmetic of reductions inside one process: combining buffers element by element, scaling one,
/// and changing between the 16-bit formats and float. Elements may be unaligned.
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

/// Where the arithmetic of T happens: unsigned for integers, so that overflow wraps and is not undefined.
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

/// into[i] = into[i] op from[i]. `avg` adds; divide when all ranks are in. Both have one dtype and count.
void combine(const Buffer& into, const Buffer& from, const Reduction& reduction);

/// to[i] = from[i] * factor, for real and complex buffers, computed in float for the 16-bit formats. `from`
/// may be to.data.
void scale(const Buffer& to, const void* from, double factor);

/// data[i] = data[i] / divisor, for real and complex buffers: the end of an average.
void divide(const Buffer& data, double divisor);

/// In which dtype partial results are kept, so that the end result is rounded once: f32 for the 16-bit
/// formats.
[[nodiscard]] constexpr DType accumulation_dtype(DType dtype) noexcept {
    return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

/// Whether a reduction of elements of the dtype must not be rounded in between.
[[nodiscard]] bool needs_wide_accumulation(DType dtype, const Reduction& reduction) noexcept;

/// Copies the elements, between any two types of real numbers or within one type. Throws ArgumentError for
/// other pairs.
void convert(const Buffer& to, const Buffer& from);

/// results[k][i] = sources[0][i] op sources[1][i] op ..., in this order, divided by job.divisor where the
/// reduction averages. `like` has the dtype of the sources. 16-bit formats are computed in float and rounded
/// once, to `result`: in sums one of the two dtypes may be f32 where the other one is of 16 bits.
void reduce_together(VectorSum job, const Buffer& like, DType result, const Reduction& reduction);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/local_reduce.ipp"
#endif
