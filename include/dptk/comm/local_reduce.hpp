/// The arithmetic of reductions inside one process: combining two buffers element by element, and scaling
/// one. Elements may be unaligned.
#pragma once

#include <algorithm>
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

/// Where the arithmetic of T happens: unsigned for integers, so that overflow wraps and is not undefined.
template <class T>
struct Arithmetic {
    using type = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

template <class T>
    requires std::is_floating_point_v<T> || std::same_as<T, bool>
struct Arithmetic<T> {
    using type = T;
};

template <class T, class Combine>
void combine_elements(void* into, const void* from, std::size_t count, Combine combine) noexcept {
    using Wide = typename Arithmetic<T>::type;
    for (std::size_t i = 0; i < count; ++i) {
        const Wide a = static_cast<Wide>(load<T>(into, i));
        const Wide b = static_cast<Wide>(load<T>(from, i));
        store<T>(into, i, static_cast<T>(combine(a, b)));
    }
}

template <class T>
void combine_typed(void* into, const void* from, std::size_t count, ReduceOp op) {
    // Ordering needs the type itself: -1 is no large unsigned number.
    const auto order = [&](auto pick) {
        for (std::size_t i = 0; i < count; ++i) store<T>(into, i, pick(load<T>(into, i), load<T>(from, i)));
    };
    switch (op) {
        case ReduceOp::min: return order([](T a, T b) { return b < a ? b : a; });
        case ReduceOp::max: return order([](T a, T b) { return a < b ? b : a; });
        default: break;
    }
    if constexpr (!std::same_as<T, bool>) {
        switch (op) {
            case ReduceOp::sum:
            case ReduceOp::avg:
                return combine_elements<T>(into, from, count, [](auto a, auto b) { return a + b; });
            case ReduceOp::product:
                return combine_elements<T>(into, from, count, [](auto a, auto b) { return a * b; });
            default: break;
        }
    }
    if constexpr (!std::is_floating_point_v<T>) {
        switch (op) {
            case ReduceOp::band:
                return combine_elements<T>(into, from, count, [](auto a, auto b) { return a & b; });
            case ReduceOp::bor:
                return combine_elements<T>(into, from, count, [](auto a, auto b) { return a | b; });
            case ReduceOp::bxor:
                return combine_elements<T>(into, from, count, [](auto a, auto b) { return a ^ b; });
            default: break;
        }
    }
    check_reduction(dtype_of<T>, op);
}

/// into[i] = into[i] op from[i]. `avg` adds; divide when all ranks are in. Both have one dtype and count.
inline void combine(const Buffer& into, const Buffer& from, ReduceOp op) {
    visit_dtype(into.dtype,
                [&](auto zero) { combine_typed<decltype(zero)>(into.data, from.data, into.count, op); });
}

/// data[i] = data[i] / divisor, for floating-point buffers: the end of an average.
inline void divide(const Buffer& data, double divisor) {
    visit_dtype(data.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_floating_point_v<T>) {
            const T by = static_cast<T>(divisor);
            for (std::size_t i = 0; i < data.count; ++i) store<T>(data.data, i, load<T>(data.data, i) / by);
        }
    });
}

/// to[i] = from[i] * factor, for floating-point buffers. `from` may be to.data.
inline void scale(const Buffer& to, const void* from, double factor) {
    visit_dtype(to.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_floating_point_v<T>) {
            const T by = static_cast<T>(factor);
            for (std::size_t i = 0; i < to.count; ++i) store<T>(to.data, i, load<T>(from, i) * by);
        }
    });
}

}  // namespace dptk::detail
