// CUDA kernels for gradient norms, clipping and low-rank products (PowerSGD).
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/detail/gradient_math.hpp"

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

struct Sum {
    __device__ double operator()(double a, double b) const { return a + b; }
};

/// The maximum. NaN counts as larger than every number.
struct Larger {
    __device__ double operator()(double a, double b) const { return b > a || isnan(b) ? b : a; }
};

/// Combines one value per thread of the block, in a fixed order. Returns the result to all threads.
template <class Combine>
__device__ double reduce_block(double own, const Combine& combine) {
    __shared__ double values[block_size];
    values[threadIdx.x] = own;
    __syncthreads();
    for (unsigned half = block_size / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
    const double all = values[0];
    __syncthreads();  // before the shared memory is reused
    return all;
}

template <class T>
__global__ void __launch_bounds__(block_size)
    norm_kernel(const __grid_constant__ TensorTable<Tensor> table, double norm_type, double* parts) {
    const auto [tensor, begin, end] = table.own_piece();
    const auto* elements = static_cast<const T*>(tensor.data);
    double own = 0;
    for (std::size_t i = begin + threadIdx.x; i < end; i += block_size) {
        const double size = fabs(static_cast<double>(widen<detail::Wide<T>>(elements[i])));
        if (isinf(norm_type)) {
            own = Larger()(own, size);
        } else if (norm_type == 2) {
            own += size * size;
        } else {
            own += norm_type == 1 ? size : pow(size, norm_type);
        }
    }
    const double all = isinf(norm_type) ? reduce_block(own, Larger()) : reduce_block(own, Sum());
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

template <class Combine>
__device__ double reduce_parts(const double* parts, std::size_t count, const Combine& combine) {
    double own = 0;
    for (std::size_t i = threadIdx.x; i < count; i += block_size) own = combine(own, parts[i]);
    return reduce_block(own, combine);
}

__global__ void __launch_bounds__(block_size)
    finish_norm_kernel(const double* parts, std::size_t count, double norm_type, double max_norm, Norm* norm) {
    const double all =
        isinf(norm_type) ? reduce_parts(parts, count, Larger()) : reduce_parts(parts, count, Sum());
    if (threadIdx.x != 0) return;
    const double value = isinf(norm_type) ? all : pow(all, 1 / norm_type);
    const double ratio = (value + 1e-6) / max_norm;
    norm->value = value;
    norm->divisor = isfinite(value) ? fmax(ratio, 1.0) : nan("");
}

template <class T>
__global__ void __launch_bounds__(block_size)
    clamp_kernel(const __grid_constant__ TensorTable<Tensor> table, double limit) {
    using Wide = detail::Wide<T>;
    const auto [tensor, begin, end] = table.own_piece();
    auto* elements = static_cast<T*>(tensor.data);
    const auto bound = static_cast<Wide>(limit);
    for (std::size_t i = begin + threadIdx.x; i < end; i += block_size) {
        const Wide element = widen<Wide>(elements[i]);
        if (element > bound) elements[i] = narrow<T>(bound);
        if (element < -bound) elements[i] = narrow<T>(-bound);
    }
}

/// The number of columns of a thin matrix (left or right) that are computed at a time.
constexpr unsigned thin = 4;

/// Each block computes one row.
__global__ void __launch_bounds__(block_size) multiply_kernel(LowRank m) {
    const float* row = m.elements + blockIdx.x * m.columns;
    for (std::size_t first = 0; first < m.rank; first += thin) {
        float sums[thin] = {};
        for (std::size_t c = threadIdx.x; c < m.columns; c += block_size) {
#pragma unroll
            for (unsigned k = 0; k < thin; ++k)
                if (first + k < m.rank) sums[k] += row[c] * m.right[c * m.rank + first + k];
        }
        for (unsigned k = 0; k < thin && first + k < m.rank; ++k) {
            const double sum = reduce_block(sums[k], Sum());
            if (threadIdx.x == 0) m.left[blockIdx.x * m.rank + first + k] = static_cast<float>(sum);
        }
    }
}

constexpr unsigned tile_columns = 32;
constexpr unsigned tile_rows = block_size / tile_columns;

/// Each block computes `tile_columns` columns; each of its threads sums every tile_rows-th row of one column.
__global__ void __launch_bounds__(block_size) multiply_transposed_kernel(LowRank m) {
    __shared__ float shared[thin][tile_rows][tile_columns];
    const unsigned x = threadIdx.x % tile_columns;
    const unsigned y = threadIdx.x / tile_columns;
    const std::size_t c = static_cast<std::size_t>(blockIdx.x) * tile_columns + x;
    for (std::size_t first = 0; first < m.rank; first += thin) {
        float sums[thin] = {};
        for (std::size_t r = y; c < m.columns && r < m.rows; r += tile_rows) {
#pragma unroll
            for (unsigned k = 0; k < thin; ++k)
                if (first + k < m.rank) sums[k] += m.elements[r * m.columns + c] * m.left[r * m.rank + first + k];
        }
        for (unsigned k = 0; k < thin; ++k) shared[k][y][x] = sums[k];
        __syncthreads();
        for (unsigned k = y; k < thin && first + k < m.rank && c < m.columns; k += tile_rows) {
            double sum = 0;
            for (unsigned other = 0; other < tile_rows; ++other) sum += shared[k][other][x];
            m.right[c * m.rank + first + k] = static_cast<float>(sum);
        }
        __syncthreads();  // before the shared memory is reused
    }
}

__global__ void __launch_bounds__(block_size) expand_kernel(LowRank m) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * block_size + threadIdx.x;
    if (i >= m.rows * m.columns) return;
    const float* left = m.left + i / m.columns * m.rank;
    const float* right = m.right + i % m.columns * m.rank;
    float sum = 0;
    for (std::size_t k = 0; k < m.rank; ++k) sum += left[k] * right[k];
    m.elements[i] = sum;
}

/// Runs as one block; each thread handles rows of its own.
__global__ void __launch_bounds__(block_size)
    orthogonalize_kernel(float* matrix, std::size_t rows, std::size_t rank) {
    const auto dot = [&](std::size_t a, std::size_t b) {
        double own = 0;
        for (std::size_t r = threadIdx.x; r < rows; r += block_size)
            own += static_cast<double>(matrix[r * rank + a]) * static_cast<double>(matrix[r * rank + b]);
        return reduce_block(own, Sum());
    };
    for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t other = 0; other < k; ++other) {
            const auto share = static_cast<float>(dot(k, other));
            for (std::size_t r = threadIdx.x; r < rows; r += block_size)
                matrix[r * rank + k] -= share * matrix[r * rank + other];
        }
        const double length = sqrt(dot(k, k));
        if (length == 0) continue;
        for (std::size_t r = threadIdx.x; r < rows; r += block_size)
            matrix[r * rank + k] = static_cast<float>(static_cast<double>(matrix[r * rank + k]) / length);
    }
}

[[nodiscard]] unsigned blocks_for(std::size_t count, unsigned each) {
    return static_cast<unsigned>((count + each - 1) / each);
}

[[nodiscard]] bool is_empty(const LowRank& matrix) {
    return matrix.rows == 0 || matrix.columns == 0 || matrix.rank == 0;
}

}  // namespace

std::size_t norm_part_count(std::span<const Tensor> tensors) {
    std::size_t parts = 0;
    for (const Tensor& tensor : tensors) parts += blocks_for(tensor.count, detail::piece_elements);
    return parts;
}

void norm_parts(std::span<const Tensor> tensors, DType type, double norm_type, double* parts,
                StreamRef stream) {
    const bool is_known = with_type(type, [&]<class T>(T) {
        for_each_tensor(tensors, [&](const TensorTable<Tensor>& table) {
            norm_kernel<T><<<table.blocks(), block_size, 0, stream.get()>>>(table, norm_type, parts);
            check(cudaGetLastError(), "norm_kernel");
            parts += table.blocks();
        });
    });
    if (!is_known) throw ArgumentError("norm_parts: expected dtype f16, bf16, f32 or f64");
}

void finish_norm(const double* parts, std::size_t count, double norm_type, double max_norm, Norm* norm,
                 StreamRef stream) {
    finish_norm_kernel<<<1, block_size, 0, stream.get()>>>(parts, count, norm_type, max_norm, norm);
    check(cudaGetLastError(), "finish_norm_kernel");
}

void clamp_all(std::span<const Tensor> tensors, DType type, double limit, StreamRef stream) {
    const bool is_known = with_type(type, [&]<class T>(T) {
        for_each_tensor(tensors, [&](const TensorTable<Tensor>& table) {
            clamp_kernel<T><<<table.blocks(), block_size, 0, stream.get()>>>(table, limit);
            check(cudaGetLastError(), "clamp_kernel");
        });
    });
    if (!is_known) throw ArgumentError("clamp_all: expected dtype f16, bf16, f32 or f64");
}

void multiply(const LowRank& matrix, StreamRef stream) {
    if (is_empty(matrix)) return;
    multiply_kernel<<<blocks_for(matrix.rows, 1), block_size, 0, stream.get()>>>(matrix);
    check(cudaGetLastError(), "multiply_kernel");
}

void multiply_transposed(const LowRank& matrix, StreamRef stream) {
    if (is_empty(matrix)) return;
    multiply_transposed_kernel<<<blocks_for(matrix.columns, tile_columns), block_size, 0, stream.get()>>>(matrix);
    check(cudaGetLastError(), "multiply_transposed_kernel");
}

void expand(const LowRank& matrix, StreamRef stream) {
    if (is_empty(matrix)) return;
    expand_kernel<<<blocks_for(matrix.rows * matrix.columns, block_size), block_size, 0, stream.get()>>>(matrix);
    check(cudaGetLastError(), "expand_kernel");
}

void orthogonalize(float* matrix, std::size_t rows, std::size_t rank, StreamRef stream) {
    if (rows == 0 || rank == 0) return;
    orthogonalize_kernel<<<1, block_size, 0, stream.get()>>>(matrix, rows, rank);
    check(cudaGetLastError(), "orthogonalize_kernel");
}

}  // namespace DPTK_NAMESPACE::cuda::kernels
