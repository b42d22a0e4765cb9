// Test double for dptk's kernels that compute: runs the same functions as loops on a stream's thread.
#include <dptk/core/cuda/detail/gradient_math.hpp>
#include <dptk/ddp/detail/low_rank.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda_double/launch.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

namespace {

using cuda_double::at;
using cuda_double::launch;
using cuda_double::narrow;
using cuda_double::wide;
using cuda_double::with_type;

constexpr std::size_t piece_elements = 4096;

[[nodiscard]] double combine(double a, double b, double norm_type) {
    if (!std::isinf(norm_type)) return a + b;
    return b > a || std::isnan(b) ? b : a;
}

/// Calls action(matrix) on the stream, with a matrix that this thread can use.
template <class Action>
void launch_low_rank(const char* kernel, const LowRank& matrix, StreamRef stream, Action action) {
    launch(kernel, stream, [=](int device) {
        LowRank m = matrix;
        m.elements = at<float>(m.elements, m.rows * m.columns, device, kernel);
        m.left = at<float>(m.left, m.rows * m.rank, device, kernel);
        m.right = at<float>(m.right, m.columns * m.rank, device, kernel);
        action(m);
    });
}

}  // namespace

std::size_t norm_part_count(std::span<const Tensor> tensors) {
    std::size_t parts = 0;
    for (const Tensor& tensor : tensors) parts += (tensor.count + piece_elements - 1) / piece_elements;
    return parts;
}

void norm_parts(std::span<const Tensor> tensors, DType type, double norm_type, double* parts,
                StreamRef stream) {
    if (!with_type(type, [](auto) {}))
        throw ArgumentError("norm_parts: expected dtype f16, bf16, f32 or f64");
    launch("norm_kernel", stream, [=, all = std::vector(tensors.begin(), tensors.end())](int device) {
        double* next = at<double>(parts, norm_part_count(all), device, "norm_kernel");
        for (const Tensor& tensor : all) {
            static_cast<void>(with_type(type, [&]<class T>(T) {
                const T* elements = at<T>(tensor.data, tensor.count, device, "norm_kernel");
                for (std::size_t first = 0; first < tensor.count; first += piece_elements) {
                    double part = 0;
                    for (std::size_t i = first; i < std::min(first + piece_elements, tensor.count); ++i) {
                        const double size = std::abs(wide(elements[i]));
                        part = combine(part, std::isinf(norm_type) ? size : std::pow(size, norm_type),
                                       norm_type);
                    }
                    *next++ = part;
                }
            }));
        }
    });
}

void finish_norm(const double* parts, std::size_t count, double norm_type, double max_norm, Norm* norm,
                 StreamRef stream) {
    launch("finish_norm_kernel", stream, [=](int device) {
        const double* all = at<double>(parts, count, device, "finish_norm_kernel");
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum = combine(sum, all[i], norm_type);
        Norm& to = *at<Norm>(norm, 1, device, "finish_norm_kernel");
        to.value = std::isinf(norm_type) ? sum : std::pow(sum, 1 / norm_type);
        to.divisor = std::isfinite(to.value) ? std::max((to.value + 1e-6) / max_norm, 1.0) : std::nan("");
    });
}

void clamp_all(std::span<const Tensor> tensors, DType type, double limit, StreamRef stream) {
    if (!with_type(type, [](auto) {})) throw ArgumentError("clamp_all: expected dtype f16, bf16, f32 or f64");
    launch("clamp_kernel", stream, [=, all = std::vector(tensors.begin(), tensors.end())](int device) {
        for (const Tensor& tensor : all) {
            static_cast<void>(with_type(type, [&]<class T>(T) {
                T* elements = at<T>(tensor.data, tensor.count, device, "clamp_kernel");
                for (std::size_t i = 0; i < tensor.count; ++i) {
                    if (std::abs(wide(elements[i])) > limit)
                        elements[i] = narrow<T>(std::copysign(limit, wide(elements[i])));
                }
            }));
        }
    });
}

void multiply(const LowRank& matrix, StreamRef stream) {
    launch_low_rank("multiply_kernel", matrix, stream, [](const LowRank& m) { dptk::detail::multiply(m); });
}

void multiply_transposed(const LowRank& matrix, StreamRef stream) {
    launch_low_rank("multiply_transposed_kernel", matrix, stream,
                    [](const LowRank& m) { dptk::detail::multiply_transposed(m); });
}

void expand(const LowRank& matrix, StreamRef stream) {
    launch_low_rank("expand_kernel", matrix, stream, [](const LowRank& m) { dptk::detail::expand(m); });
}

void orthogonalize(float* matrix, std::size_t rows, std::size_t rank, StreamRef stream) {
    launch("orthogonalize_kernel", stream, [=](int device) {
        dptk::detail::orthogonalize(at<float>(matrix, rows * rank, device, "orthogonalize_kernel"), rows,
                                    rank);
    });
}

}  // namespace DPTK_NAMESPACE::cuda::kernels
