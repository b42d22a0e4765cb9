// CUDA kernels that copy, scale and accumulate gradients to and from buckets, and that count failed steps.
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/detail/kernels.hpp"

#include <cstdint>
#include <type_traits>

#include "dptk/core/cuda/element.cuh"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/multi_tensor.cuh"

namespace DPTK_NAMESPACE::cuda::kernels {

namespace {

using detail::for_each_tensor;
using detail::narrow;
using detail::TensorTable;
using detail::widen;
using detail::with_type;

constexpr unsigned block_size = 256;

template <class T, unsigned size>
struct alignas(size * sizeof(T)) Pack {
    T values[size];
};

template <class T>
constexpr bool is_floating = std::is_floating_point_v<T> || std::is_same_v<T, __half> ||
                             std::is_same_v<T, __nv_bfloat16>;

/// Multiplies in type Wide, then rounds to To.
template <class From, class To, class Wide>
struct Scale {
    Wide weight;

    __device__ To operator()(From value, bool& is_nonfinite) const {
        const Wide wide = widen<Wide>(value);
        is_nonfinite = is_nonfinite || !isfinite(wide);
        return narrow<To>(weight * wide);
    }
};

template <class T>
struct Identity {
    __device__ T operator()(T value, bool& is_nonfinite) const {
        if constexpr (is_floating<T>) {
            is_nonfinite = is_nonfinite || !isfinite(widen<detail::Wide<T>>(value));
        }
        return value;
    }
};

template <class From, class To, class Rule>
__device__ bool copy_piece(const From* from, To* to, std::size_t count, const Rule& rule) {
    constexpr unsigned size = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
    constexpr unsigned ahead = 4;
    using In = Pack<From, size>;
    using Out = Pack<To, size>;
    bool is_nonfinite = false;
    std::size_t done = 0;
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(In) == 0 &&
                            reinterpret_cast<std::uintptr_t>(to) % sizeof(Out) == 0;
    if (is_aligned) {
        const std::size_t packs = count / size;
        const auto* in = reinterpret_cast<const In*>(from);
        auto* out = reinterpret_cast<Out*>(to);
        for (std::size_t first = threadIdx.x; first < packs; first += ahead * block_size) {
            In loaded[ahead];
#pragma unroll
            for (unsigned k = 0; k < ahead; ++k)
                if (first + k * block_size < packs) loaded[k] = in[first + k * block_size];
#pragma unroll
            for (unsigned k = 0; k < ahead; ++k) {
                if (first + k * block_size >= packs) break;
                Out stored;
#pragma unroll
                for (unsigned i = 0; i < size; ++i) stored.values[i] = rule(loaded[k].values[i], is_nonfinite);
                out[first + k * block_size] = stored;
            }
        }
        done = packs * size;
    }
    for (std::size_t i = done + threadIdx.x; i < count; i += block_size) to[i] = rule(from[i], is_nonfinite);
    return is_nonfinite;
}

template <class T>
__device__ void zero_piece(T* to, std::size_t count) {
    for (std::size_t i = threadIdx.x; i < count; i += block_size) to[i] = T{};
}

template <class From, class To, bool scales>
__global__ void __launch_bounds__(block_size)
    copy_kernel(const __grid_constant__ TensorTable<CopiedTensor> table, CopyWeight weight,
                int* found_nonfinite) {
    const auto [tensor, begin, end] = table.own_piece();
    const auto* from = static_cast<const From*>(tensor.from) + begin;
    auto* to = static_cast<To*>(tensor.to) + begin;
    double factor = weight.factor;
    if (weight.divisor != nullptr) factor = *weight.divisor == 0 ? 0 : factor / *weight.divisor;
    if (factor == 0) return zero_piece(to, end - begin);
    bool is_nonfinite = false;
    if constexpr (scales) {
        using Wide =
            std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
        is_nonfinite = copy_piece(from, to, end - begin, Scale<From, To, Wide>{static_cast<Wide>(factor)});
    } else {
        is_nonfinite = copy_piece(from, to, end - begin, Identity<From>());
    }
    if (found_nonfinite != nullptr && is_nonfinite) *found_nonfinite = 1;
}

template <class From, class To, bool scales>
void launch(std::span<const CopiedTensor> tensors, const CopyWeight& weight, int* found_nonfinite,
            StreamRef stream) {
    for_each_tensor(tensors, [&](const TensorTable<CopiedTensor>& table) {
        copy_kernel<From, To, scales>
            <<<table.blocks(), block_size, 0, stream.get()>>>(table, weight, found_nonfinite);
        check(cudaGetLastError(), "copy_kernel");
    });
}

/// Calls fn with a zero of a type that has the dtype's size, for copying bits. Returns false if the size is
/// not 1, 2, 4, 8 or 16 bytes.
template <class Fn>
[[nodiscard]] bool with_size(DType type, Fn&& fn) {
    switch (dtype_size(type)) {
        case 1: return fn(std::uint8_t{}), true;
        case 2: return fn(std::uint16_t{}), true;
        case 4: return fn(std::uint32_t{}), true;
        case 8: return fn(std::uint64_t{}), true;
        case 16: return fn(Pack<std::uint64_t, 2>{}), true;
        default: return false;
    }
}

template <class From, class To>
__global__ void accumulate_kernel(const __grid_constant__ TensorTable<CopiedTensor> table, To factor) {
    const auto [tensor, begin, end] = table.own_piece();
    auto* from = static_cast<From*>(const_cast<void*>(tensor.from));
    auto* to = static_cast<To*>(tensor.to);
    for (std::size_t i = begin + threadIdx.x; i < end; i += block_size) {
        to[i] += factor * widen<To>(from[i]);
        from[i] = From{};
    }
}

__global__ void write_words_kernel(double* to, StepWords words) {
    to[threadIdx.x] = words.values[threadIdx.x];
}

template <class T>
__global__ void write_scalar_kernel(T* to, double value) {
    *to = narrow<T>(value);
}

template <class T>
__global__ void judge_step_kernel(const double* words, const T* status, double* bad_steps) {
    const double counting = words[1];
    const double present = words[2];
    const double problems = words[3];
    const bool some_count = counting != 0 && counting != present;
    // NaN also counts as a nonzero status.
    const bool is_raised = status != nullptr && !(widen<float>(*status) == 0);
    if (problems != 0 || some_count || is_raised) *bad_steps += 1;
}

}  // namespace

void copy_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, const CopyWeight& weight,
              StreamRef stream) {
    const bool is_plain = format.from == format.to && weight.divisor == nullptr &&
                          (weight.factor == 1 || weight.factor == 0);
    int* const found = format.found_nonfinite;
    const bool is_done = with_type(format.from, [&]<class From>(From) {
        if (is_plain) return launch<From, From, false>(tensors, weight, found, stream);
        const bool is_known = with_type(format.to, [&]<class To>(To) {
            launch<From, To, true>(tensors, weight, found, stream);
        });
        if (!is_known)
            throw ArgumentError("copy_all: expected a floating-point destination for a floating-point source");
    });
    if (is_done) return;
    const bool is_moved = is_plain && with_size(format.from, [&]<class T>(T) {
                              launch<T, T, false>(tensors, weight, nullptr, stream);
                          });
    if (!is_moved)
        throw ArgumentError("copy_all: expected dtype f16, bf16, f32 or f64 for a weight or a conversion");
}

void accumulate_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, double factor,
                    StreamRef stream) {
    const bool is_known = with_type(format.from, [&]<class From>(From) {
        using To = detail::Wide<From>;
        for_each_tensor(tensors, [&](const TensorTable<CopiedTensor>& table) {
            accumulate_kernel<From, To>
                <<<table.blocks(), block_size, 0, stream.get()>>>(table, static_cast<To>(factor));
            check(cudaGetLastError(), "accumulate_kernel");
        });
    });
    if (!is_known) throw ArgumentError("accumulate_all: expected dtype f16, bf16, f32 or f64");
}

void write_words(double* to, const StepWords& words, StreamRef stream) {
    write_words_kernel<<<1, 4, 0, stream.get()>>>(to, words);
    check(cudaGetLastError(), "write_words_kernel");
}

void write_scalar(void* to, DType type, double value, StreamRef stream) {
    const bool is_known = with_type(type, [&]<class T>(T) {
        write_scalar_kernel<<<1, 1, 0, stream.get()>>>(static_cast<T*>(to), value);
    });
    if (!is_known) throw ArgumentError("write_scalar: expected dtype f16, bf16, f32 or f64");
    check(cudaGetLastError(), "write_scalar_kernel");
}

void count_failed_step(const double* words, const void* status, DType type, double* bad_steps, StreamRef stream) {
    const bool is_known = with_type(type, [&]<class T>(T) {
        judge_step_kernel<<<1, 1, 0, stream.get()>>>(words, static_cast<const T*>(status), bad_steps);
    });
    if (!is_known) throw ArgumentError("count_failed_step: expected dtype f16, bf16, f32 or f64");
    check(cudaGetLastError(), "judge_step_kernel");
}

}  // namespace DPTK_NAMESPACE::cuda::kernels
