/// DType, the run-time element type (dtype) of data that dptk can send and reduce. dtype_of maps C++ types
/// to it.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <string_view>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/float16.hpp"

namespace DPTK_NAMESPACE {

/// The element types. c64 is a complex number of two f32, c128 of two f64. `opaque` is a user's type: dptk
/// sends it as bytes, and reduces it only by a user's function.
enum class DType : std::uint8_t {
    boolean,
    i8,
    u8,
    i16,
    u16,
    i32,
    u32,
    i64,
    u64,
    f16,
    bf16,
    f32,
    f64,
    c64,
    c128,
    opaque,
};

/// Returns the name of a dtype as messages show it: "f32".
[[nodiscard]] constexpr std::string_view dtype_name(DType dtype) noexcept {
    switch (dtype) {
        case DType::boolean: return "bool";
        case DType::i8: return "i8";
        case DType::u8: return "u8";
        case DType::i16: return "i16";
        case DType::u16: return "u16";
        case DType::i32: return "i32";
        case DType::u32: return "u32";
        case DType::i64: return "i64";
        case DType::u64: return "u64";
        case DType::f16: return "f16";
        case DType::bf16: return "bf16";
        case DType::f32: return "f32";
        case DType::f64: return "f64";
        case DType::c64: return "c64";
        case DType::c128: return "c128";
        case DType::opaque: return "opaque";
    }
    return "no dtype";
}

/// Returns the bytes of one element. Returns 0 for opaque, whose element size is stored in each Buffer.
[[nodiscard]] constexpr std::size_t dtype_size(DType dtype) noexcept {
    switch (dtype) {
        case DType::boolean:
        case DType::i8:
        case DType::u8: return 1;
        case DType::i16:
        case DType::u16:
        case DType::f16:
        case DType::bf16: return 2;
        case DType::i32:
        case DType::u32:
        case DType::f32: return 4;
        case DType::i64:
        case DType::u64:
        case DType::f64:
        case DType::c64: return 8;
        case DType::c128: return 16;
        case DType::opaque: break;
    }
    return 0;
}

/// Returns whether a dtype is a real floating-point type: f16, bf16, f32 or f64.
[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
    return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

/// Returns whether a dtype is complex: c64 or c128.
[[nodiscard]] constexpr bool is_complex(DType dtype) noexcept {
    return dtype == DType::c64 || dtype == DType::c128;
}

/// Maps an element type to its DType. Specialize it for a type of your own that has the same representation
/// as one of the DTypes:
/// `template <> struct dptk::DTypeTraits<MyFloat> { static constexpr DType value = DType::f32; };`
template <class T>
struct DTypeTraits {};

template <std::integral T>
    requires(sizeof(T) <= 8)
struct DTypeTraits<T> {
    static constexpr DType value = [] {
        if constexpr (std::same_as<T, bool>) return DType::boolean;
        constexpr bool is_signed = std::is_signed_v<T>;
        switch (sizeof(T)) {
            case 1: return is_signed ? DType::i8 : DType::u8;
            case 2: return is_signed ? DType::i16 : DType::u16;
            case 4: return is_signed ? DType::i32 : DType::u32;
            default: return is_signed ? DType::i64 : DType::u64;
        }
    }();
};

template <>
struct DTypeTraits<float16> {
    static constexpr DType value = DType::f16;
};

template <>
struct DTypeTraits<bfloat16> {
    static constexpr DType value = DType::bf16;
};

template <>
struct DTypeTraits<float> {
    static constexpr DType value = DType::f32;
};

template <>
struct DTypeTraits<double> {
    static constexpr DType value = DType::f64;
};

template <>
struct DTypeTraits<std::complex<float>> {
    static constexpr DType value = DType::c64;
};

template <>
struct DTypeTraits<std::complex<double>> {
    static constexpr DType value = DType::c128;
};

namespace detail {

template <class T>
concept HasDType = requires {
    { DTypeTraits<std::remove_cv_t<T>>::value } -> std::convertible_to<DType>;
};

template <class T>
inline constexpr bool is_reference_wrapper = false;
template <class T>
inline constexpr bool is_reference_wrapper<std::reference_wrapper<T>> = true;

/// A view, such as std::span, std::string_view or DeviceSpan: its bytes are the address of elements, which
/// means nothing in another process.
template <class T>
concept ViewOfMemory =
    std::ranges::view<T> || std::ranges::borrowed_range<T> || is_reference_wrapper<T> || requires(T& view) {
        view.data();
        view.device();
    };

/// Fails to compile, with a sentence, if T is a view.
template <class T>
consteval void refuse_views() {
    static_assert(!ViewOfMemory<T>,
                  "dptk: these elements are views, such as std::span or std::string_view: other ranks cannot "
                  "read the memory that they refer to. Send the elements of the views, or use the verbs for "
                  "objects with std::string or std::vector");
}

}  // namespace detail

/// A type that dptk can send in a collective: one with a DType, or any other that may be copied as bytes.
/// Pointers and views are excluded.
template <class T>
concept Element =
    detail::HasDType<T> || (std::is_trivially_copyable_v<std::remove_cv_t<T>> && !std::is_pointer_v<T> &&
                            !std::is_member_pointer_v<T> && !detail::ViewOfMemory<std::remove_cv_t<T>>);

/// The DType of T; opaque for a type that has none.
template <Element T>
inline constexpr DType dtype_of = [] {
    if constexpr (detail::HasDType<T>) {
        return DTypeTraits<std::remove_cv_t<T>>::value;
    } else {
        return DType::opaque;
    }
}();

/// Calls `fn` with a value-initialized element of the C++ type of `dtype`, and returns its result:
/// `visit_dtype(dtype, [&](auto zero) { using T = decltype(zero); ... })`. Throws ArgumentError for opaque.
template <class Fn>
decltype(auto) visit_dtype(DType dtype, Fn&& fn) {
    switch (dtype) {
        case DType::boolean: return fn(bool{});
        case DType::i8: return fn(std::int8_t{});
        case DType::u8: return fn(std::uint8_t{});
        case DType::i16: return fn(std::int16_t{});
        case DType::u16: return fn(std::uint16_t{});
        case DType::i32: return fn(std::int32_t{});
        case DType::u32: return fn(std::uint32_t{});
        case DType::i64: return fn(std::int64_t{});
        case DType::u64: return fn(std::uint64_t{});
        case DType::f16: return fn(float16{});
        case DType::bf16: return fn(bfloat16{});
        case DType::f32: return fn(float{});
        case DType::f64: return fn(double{});
        case DType::c64: return fn(std::complex<float>{});
        case DType::c128: return fn(std::complex<double>{});
        case DType::opaque: throw ArgumentError("visit_dtype: the dtype opaque has no C++ type");
    }
    throw ArgumentError(detail::text("invalid DType: ", static_cast<int>(dtype)));
}

}  // namespace DPTK_NAMESPACE
