#pragma once

#include "dptk/comm/algorithms/local_reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace DPTK_NAMESPACE::detail {

inline namespace DPTK_ARITHMETIC {

/// The scalar type by which a T is scaled.
template <class T>
using ScalarOf =
    std::conditional_t<std::same_as<T, double> || std::same_as<T, std::complex<double>>, double, float>;

/// The type in which T is compared for min and max: unlike Arithmetic, it keeps the sign of integers.
template <class T>
using Ordered = std::conditional_t<SixteenBitFloat<T>, float, T>;

template <class T>
[[nodiscard]] bool is_nan(T value) noexcept {
    if constexpr (std::floating_point<T>) return value != value;
    return false;
}

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
        // The result is NaN if an element of any rank is, as in PyTorch.
        if (op == ReduceOp::min) return pick([](auto a, auto b) { return b < a || is_nan(b) ? b : a; });
        if (op == ReduceOp::max) return pick([](auto a, auto b) { return a < b || is_nan(b) ? b : a; });
    }
    if constexpr (!std::same_as<T, bool>) {
        if (op == ReduceOp::product) return combine([](auto a, auto b) { return a * b; });
    }
    if constexpr (std::integral<T>) {
        if (op == ReduceOp::band) return combine([](auto a, auto b) { return a & b; });
        if (op == ReduceOp::bor) return combine([](auto a, auto b) { return a | b; });
        if (op == ReduceOp::bxor) return combine([](auto a, auto b) { return a ^ b; });
    }
    check_reduction(dtype_of<T>, op);
}

/// Sums by SIMD loops. Throws ArgumentError for dtypes that have no sum.
DPTK_INLINE void sum_together(const VectorSum& sum, DType dtype, DType result) {
    switch (dtype) {
        case DType::i8:
        case DType::u8: return sum_vectors<std::uint8_t>(sum);  // overflow wraps
        case DType::i16:
        case DType::u16: return sum_vectors<std::uint16_t>(sum);
        case DType::i32:
        case DType::u32: return sum_vectors<std::uint32_t>(sum);
        case DType::i64:
        case DType::u64: return sum_vectors<std::uint64_t>(sum);
        case DType::f16:
            return result == DType::f32 ? sum_vectors<float16, float>(sum) : sum_vectors<float16>(sum);
        case DType::bf16:
            return result == DType::f32 ? sum_vectors<bfloat16, float>(sum) : sum_vectors<bfloat16>(sum);
        case DType::f32:
            if (result == DType::f16) return sum_vectors<float, float16>(sum);
            if (result == DType::bf16) return sum_vectors<float, bfloat16>(sum);
            return sum_vectors<float>(sum);
        case DType::f64: return sum_vectors<double>(sum);
        case DType::c64:
        case DType::c128: {
            VectorSum parts = sum;
            parts.count *= 2;
            return dtype == DType::c64 ? sum_vectors<float>(parts) : sum_vectors<double>(parts);
        }
        case DType::boolean:
        case DType::opaque: break;
    }
    check_reduction(dtype, ReduceOp::sum);
}

DPTK_INLINE void combine(const Buffer& into, const Buffer& from, const Reduction& reduction) {
    if (into.count == 0) return;
    if (reduction.user != nullptr) return reduction.user->combine(into.data, from.data, into.count);
    check_reduction(into.dtype, reduction.op);
    if (reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg) {
        const std::array<const void*, 2> sources{into.data, from.data};
        return sum_together({sources, {&into.data, 1}, into.count}, into.dtype, into.dtype);
    }
    visit_dtype(into.dtype, [&](auto zero) {
        combine_typed<decltype(zero)>(into.data, from.data, into.count, reduction.op);
    });
}

DPTK_INLINE void scale(const Buffer& to, const void* from, double factor) {
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

DPTK_INLINE void divide(const Buffer& data, double divisor) {
    visit_dtype(data.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (Real<T> || Complex<T>) {
            using Wide = typename Arithmetic<T>::type;
            const auto by =
                static_cast<ScalarOf<T>>(divisor);  // a complex divisor would turn infinity into NaN
            for (std::size_t i = 0; i < data.count; ++i)
                store<T>(data.data, i, static_cast<T>(static_cast<Wide>(load<T>(data.data, i)) / by));
        }
    });
}

DPTK_INLINE bool needs_wide_accumulation(DType dtype, const Reduction& reduction) noexcept {
    const bool exact = reduction.op == ReduceOp::min || reduction.op == ReduceOp::max;
    return accumulation_dtype(dtype) != dtype && reduction.user == nullptr && !exact;
}

/// Computes to[i] = from[i], rounded once if the target dtype is narrower.
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

DPTK_INLINE void convert(const Buffer& to, const Buffer& from) {
    if (to.dtype == from.dtype) {
        if (to.bytes() != 0) std::memmove(to.data, from.data, to.bytes());
        return;
    }
    if (!is_floating(to.dtype) || !is_floating(from.dtype))
        throw ArgumentError(
            text("cannot convert elements from ", dtype_name(from.dtype), " to ", dtype_name(to.dtype)));
    visit_dtype(from.dtype, [&](auto zero) {
        using From = decltype(zero);
        if constexpr (Real<From>) convert_from<From>(to, from.data);
    });
}

/// Reduces without SIMD loops: in pieces that fit the cache, and in accumulation_dtype.
DPTK_INLINE void reduce_pieces(const VectorSum& job, const Buffer& like, const Reduction& reduction) {
    constexpr std::size_t piece_bytes = 16384;
    const bool widen = needs_wide_accumulation(like.dtype, reduction);
    Buffer sum = like;
    if (widen) sum.dtype = accumulation_dtype(like.dtype);
    sum.count = std::min(job.count, piece_bytes / sum.element_size());
    alignas(64) std::array<std::byte, piece_bytes> sum_memory;
    alignas(64) std::array<std::byte, piece_bytes> part_memory;
    for (std::size_t done = 0; done < job.count; done += sum.count) {
        const std::size_t count = std::min(sum.count, job.count - done);
        const auto piece = [&](const void* data) {
            Buffer out = like.at(const_cast<void*>(data)).slice(done, count);
            return out;
        };
        const Buffer total = sum.at(sum_memory.data()).slice(0, count);
        const Buffer wide_part = sum.at(part_memory.data()).slice(0, count);
        convert(total, piece(job.sources[0]));
        for (const void* source : job.sources.subspan(1)) {
            if (widen) convert(wide_part, piece(source));
            combine(total, widen ? wide_part : piece(source), reduction);
        }
        for (void* result : job.results) convert(piece(result), total);
    }
}

DPTK_INLINE void reduce_together(VectorSum job, const Buffer& like, DType result,
                                 const Reduction& reduction) {
    if (job.count == 0) return;
    const bool sums = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg;
    if (reduction.user != nullptr || !sums) return reduce_pieces(job, like, reduction);
    if (!reduction.averages()) job.divisor = 1;
    sum_together(job, like.dtype, result);
}

}  // namespace DPTK_ARITHMETIC

}  // namespace DPTK_NAMESPACE::detail
