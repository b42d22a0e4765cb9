// Helpers for the test doubles of kernels.
#pragma once

#include <dptk/core/cuda/error.hpp>
#include <dptk/core/dtype.hpp>
#include <dptk/core/float16.hpp>
#include <dptk/core/stream_ref.hpp>

#include <functional>
#include <type_traits>
#include <utility>

#include "cuda_double/state.hpp"

namespace cuda_double {

/// Enqueues the work on the stream.
inline void launch(const char* kernel, dptk::StreamRef stream, std::function<void(int device)> work) {
    Stream& its = stream_of(stream.get());
    dptk::cuda::check(static_cast<cudaError_t>(on_call(kernel, its.device())), kernel);
    its.add([work = std::move(work), device = its.device()] { work(device); });
}

template <class T>
T* at(const void* data, std::size_t count, int device, const char* who) {
    return reinterpret_cast<T*>(translate(data, count * sizeof(T), device, who));
}

/// Calls fn with a value of the type if it is a floating-point type. Returns whether it is.
template <class Fn>
bool with_type(dptk::DType type, Fn&& fn) {
    switch (type) {
        case dptk::DType::f16: return fn(dptk::float16{}), true;
        case dptk::DType::bf16: return fn(dptk::bfloat16{}), true;
        case dptk::DType::f32: return fn(float{}), true;
        case dptk::DType::f64: return fn(double{}), true;
        default: return false;
    }
}

template <class T>
double wide(T value) {
    if constexpr (std::is_same_v<T, double>) return value;
    return static_cast<double>(static_cast<float>(value));
}

template <class T>
T narrow(double value) {
    if constexpr (std::is_same_v<T, double>) return value;
    return static_cast<T>(static_cast<float>(value));
}

}  // namespace cuda_double
