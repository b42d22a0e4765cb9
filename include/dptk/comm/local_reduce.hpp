/// The arithmetic of reductions inside one process: combining two buffers element by element, scaling one,
/// and changing between the 16-bit formats and float. Elements may be unaligned.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"

namespace dptk::detail {

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

/// The real numbers by which a T can be scaled.
template <class T>
using ScalarOf =
    std::conditional_t<std::same_as<T, double> || std::same_as<T, std::complex<double>>, double, float>;

/// Where the order of T is: -1 is no large unsigned number.
template <class T>
using Ordered = std::conditional_t<SixteenBitFloat<T>, float, T>;

template <class T, class Wide, class Combine>
void combine_elements(void* into, const void* from, std::size_t count, Combine combine) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const Wide a = static_cast<Wide>(load<T>(into, i));
        const Wide b = static_cast<Wide>(load<T>(from, i));
        store<T>(into, i, static_cast<T>(combine(a, b)));
    }
}

template <class T>
void combine_typed(void* into, const void* from, std::size_t count, ReduceOp op) {
    const auto combine = [&](auto function) {
        combine_elements<T, typename Arithmetic<T>::type>(into, from, count, function);
    };
    const auto pick = [&](auto function) { combine_elements<T, Ordered<T>>(into, from, count, function); };
    if constexpr (!Complex<T>) {
        if (op == ReduceOp::min) return pick([](auto a, auto b) { return b < a ? b : a; });
        if (op == ReduceOp::max) return pick([](auto a, auto b) { return a < b ? b : a; });
    }
    if constexpr (!std::same_as<T, bool>) {
        if (op == ReduceOp::sum || op == ReduceOp::avg) return combine([](auto a, auto b) { return a + b; });
        if (op == ReduceOp::product) return combine([](auto a, auto b) { return a * b; });
    }
    if constexpr (std::integral<T>) {
        if (op == ReduceOp::band) return combine([](auto a, auto b) { return a & b; });
        if (op == ReduceOp::bor) return combine([](auto a, auto b) { return a | b; });
        if (op == ReduceOp::bxor) return combine([](auto a, auto b) { return a ^ b; });
    }
    check_reduction(dtype_of<T>, op);
}

/// into[i] = into[i] op from[i]. `avg` adds; divide when all ranks are in. Both have one dtype and count.
inline void combine(const Buffer& into, const Buffer& from, const Reduction& reduction) {
    if (reduction.user != nullptr) {
        if (into.count != 0) reduction.user->combine(into.data, from.data, into.count);
        return;
    }
    visit_dtype(into.dtype, [&](auto zero) {
        combine_typed<decltype(zero)>(into.data, from.data, into.count, reduction.op);
    });
}

/// to[i] = from[i] * factor, for real and complex buffers, computed in float for the 16-bit formats. `from`
/// may be to.data.
inline void scale(const Buffer& to, const void* from, double factor) {
    visit_dtype(to.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (Real<T> || Complex<T>) {
            using Wide = typename Arithmetic<T>::type;
            const auto by = static_cast<ScalarOf<T>>(factor);
            for (std::size_t i = 0; i < to.count; ++i)
                store<T>(to.data, i, static_cast<T>(static_cast<Wide>(load<T>(from, i)) * by));
        }
    });
}

/// data[i] = data[i] / divisor, for real and complex buffers: the end of an average.
inline void divide(const Buffer& data, double divisor) {
    visit_dtype(data.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (Real<T> || Complex<T>) {
            using Wide = typename Arithmetic<T>::type;
            const auto by =
                static_cast<ScalarOf<T>>(divisor);  // a complex divisor would make NaN of infinity
            for (std::size_t i = 0; i < data.count; ++i)
                store<T>(data.data, i, static_cast<T>(static_cast<Wide>(load<T>(data.data, i)) / by));
        }
    });
}

/// In which dtype partial results are kept, so that the end result is rounded once: f32 for the 16-bit
/// formats.
[[nodiscard]] constexpr DType accumulation_dtype(DType dtype) noexcept {
    return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

/// Whether a reduction of elements of the dtype must not be rounded in between.
[[nodiscard]] inline bool needs_wide_accumulation(DType dtype, const Reduction& reduction) noexcept {
    const bool exact = reduction.op == ReduceOp::min || reduction.op == ReduceOp::max;
    return accumulation_dtype(dtype) != dtype && reduction.user == nullptr && !exact;
}

/// to[i] = from[i], each rounded once to a type that is narrower.
template <Real From>
void convert_from(const Buffer& to, const void* from) {
    visit_dtype(to.dtype, [&](auto zero) {
        using To = decltype(zero);
        if constexpr (Real<To>) {
            using Wide = typename Arithmetic<To>::type;
            for (std::size_t i = 0; i < to.count; ++i) {
                const auto value = static_cast<typename Arithmetic<From>::type>(load<From>(from, i));
                store<To>(to.data, i, static_cast<To>(static_cast<Wide>(value)));
            }
        }
    });
}

/// Copies the elements, between any two types of real numbers or within one type. Throws ArgumentError for
/// other pairs.
inline void convert(const Buffer& to, const Buffer& from) {
    if (to.dtype == from.dtype) {
        if (to.bytes() != 0) std::memmove(to.data, from.data, to.bytes());
        return;
    }
    if (!is_floating(to.dtype) || !is_floating(from.dtype))
        throw ArgumentError(
            text("no conversion from ", dtype_name(from.dtype), " to ", dtype_name(to.dtype)));
    visit_dtype(from.dtype, [&](auto zero) {
        using From = decltype(zero);
        if constexpr (Real<From>) convert_from<From>(to, from.data);
    });
}

}  // namespace dptk::detail
