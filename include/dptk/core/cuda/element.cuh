// Element types in CUDA kernels: conversion to a wider type for arithmetic, and dispatch over dtypes. For
// .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

/// The type in which arithmetic on elements of T is done.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class Wide, class T>
__device__ Wide widen(T value) {
    if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>) {
        return static_cast<Wide>(static_cast<float>(value));
    } else {
        return static_cast<Wide>(value);
    }
}

/// Converts to T, rounding once.
template <class T, class Wide>
__device__ T narrow(Wide value) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(static_cast<float>(value));
    } else {
        return static_cast<T>(value);
    }
}

/// Calls fn with a value of the C++ type of a floating-point dtype and returns true; returns false for
/// other dtypes.
template <class Fn>
[[nodiscard]] bool with_type(DType type, Fn&& fn) {
    switch (type) {
        case DType::f16: return fn(__half{}), true;
        case DType::bf16: return fn(__nv_bfloat16{}), true;
        case DType::f32: return fn(float{}), true;
        case DType::f64: return fn(double{}), true;
        default: return false;
    }
}

}  // namespace DPTK_NAMESPACE::cuda::detail
