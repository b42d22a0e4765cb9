// CUDA kernels of networks: layouts, bias and ReLU, pooling, unfolding, loss and batches.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/multi_tensor.cuh"
#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda::kernels {

namespace {

using dptk::cuda::check;
using dptk::cuda::detail::for_each_tensor;
using dptk::cuda::detail::TensorTable;

constexpr unsigned block_size = 256;
constexpr std::size_t most_blocks = 132 * 16;

__device__ float to_float(float x) {
    return x;
}
__device__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
template <class T>
__device__ T from_float(float x);
template <>
__device__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

/// 16 bytes of elements.
template <class T>
struct alignas(16) Pack {
    static constexpr unsigned size = 16 / sizeof(T);
    T values[size];
};

[[nodiscard]] unsigned blocks_for(std::size_t count, std::size_t per_block = block_size) {
    return static_cast<unsigned>(std::clamp<std::size_t>((count + per_block - 1) / per_block, 1, most_blocks));
}

/// Calls fn with a value of the C++ type of `type`.
template <class Fn>
void with_type(DType type, Fn&& fn) {
    if (type == DType::bf16) return fn(__nv_bfloat16{});
    if (type == DType::f32) return fn(float{});
    throw ArgumentError("expected dtype f32 or bf16");
}

void check_launch(const char* kernel) {
    check(cudaGetLastError(), kernel);
}

[[nodiscard]] __device__ std::size_t thread_index() {
    return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

[[nodiscard]] __device__ std::size_t thread_count() {
    return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

// ---- layouts and types

template <class T>
__global__ void to_channels_last_kernel(const float* images, T* out, std::size_t count, unsigned channels,
                                        unsigned padded, unsigned pixels) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const auto channel = static_cast<unsigned>(i % padded);
        const std::size_t position = i / padded;
        const std::size_t n = position / pixels;
        const std::size_t pixel = position % pixels;
        out[i] = channel < channels ? from_float<T>(images[(n * channels + channel) * pixels + pixel])
                                    : from_float<T>(0.0F);
    }
}

template <class T>
__global__ void from_channels_last_kernel(const T* images, float* out, std::size_t count, unsigned channels,
                                          unsigned padded, unsigned pixels) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const std::size_t pixel = i % pixels;
        const std::size_t channel = i / pixels % channels;
        const std::size_t n = i / pixels / channels;
        out[i] = to_float(images[(n * pixels + pixel) * padded + channel]);
    }
}

template <class From, class To>
__global__ void convert_kernel(const From* from, To* to, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count())
        to[i] = from_float<To>(to_float(from[i]));
}

// ---- element by element

/// Computes max(x, 0). NaN stays NaN.
template <class T>
__global__ void relu_kernel(const T* in, T* out, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const float x = to_float(in[i]);
        out[i] = x < 0 ? from_float<T>(0.0F) : in[i];
    }
}

template <class T>
__global__ void add_bias_kernel(T* data, const T* bias, std::size_t count, unsigned channels, bool is_relu) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const float x = to_float(data[i]) + to_float(bias[i % channels]);
        data[i] = from_float<T>(is_relu && x < 0 ? 0.0F : x);
    }
}

template <class T>
__global__ void relu_backward_kernel(const T* output, T* gradient, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count())
        if (to_float(output[i]) <= 0) gradient[i] = from_float<T>(0.0F);
}

// ---- sums over rows

/// Computes partial sums over rows. Blocks with the same blockIdx.y write one row of `partial`. Threads that
/// differ in x sum different channels; threads that differ in y sum different rows of the same channels.
template <class T, unsigned size>
__global__ void bias_gradient_kernel(T* gradient, const T* output, std::size_t rows, unsigned channels,
                                     float* partial) {
    struct alignas(size * sizeof(T)) Group {
        T values[size];
    };
    __shared__ float sums[block_size * size];
    const unsigned group = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned groups = channels / size;
    float own[size] = {};
    if (group < groups) {
        const std::size_t step = static_cast<std::size_t>(gridDim.y) * blockDim.y;
        for (std::size_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step) {
            const std::size_t place = row * groups + group;
            Group values = reinterpret_cast<const Group*>(gradient)[place];
            if (output != nullptr) {
                const Group outputs = reinterpret_cast<const Group*>(output)[place];
#pragma unroll
                for (unsigned i = 0; i < size; ++i)
                    if (to_float(outputs.values[i]) <= 0) values.values[i] = from_float<T>(0.0F);
                reinterpret_cast<Group*>(gradient)[place] = values;
            }
#pragma unroll
            for (unsigned i = 0; i < size; ++i) own[i] += to_float(values.values[i]);
        }
    }
    const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (unsigned i = 0; i < size; ++i) sums[place * size + i] = own[i];
    __syncthreads();
    if (threadIdx.y != 0 || group >= groups) return;
    for (unsigned y = 1; y < blockDim.y; ++y) {
#pragma unroll
        for (unsigned i = 0; i < size; ++i) own[i] += sums[(y * blockDim.x + threadIdx.x) * size + i];
    }
#pragma unroll
    for (unsigned i = 0; i < size; ++i)
        partial[static_cast<std::size_t>(blockIdx.y) * channels + group * size + i] = own[i];
}

/// Sums `rows` rows. Each block sums 32 channels, with 32 threads for each channel.
__global__ void sum_rows_kernel(const float* partial, unsigned rows, unsigned channels, float* sums) {
    __shared__ float shared[32][33];
    const unsigned channel = blockIdx.x * 32 + threadIdx.x;
    float own = 0;
    if (channel < channels)
        for (unsigned row = threadIdx.y; row < rows; row += 32)
            own += partial[static_cast<std::size_t>(row) * channels + channel];
    shared[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y != 0 || channel >= channels) return;
    for (unsigned y = 1; y < 32; ++y) own += shared[y][threadIdx.x];
    sums[channel] = own;
}

struct RowBlocks {
    unsigned group_size;
    dim3 threads;
    dim3 blocks;
};

RowBlocks row_blocks(std::size_t rows, std::size_t channels, DType type) {
    const unsigned pack = type == DType::bf16 ? 8 : 4;
    RowBlocks out{};
    out.group_size = channels % pack == 0 ? pack : 1;
    const auto groups = static_cast<unsigned>(channels / out.group_size);
    unsigned wide = 1;
    while (wide < 32 && wide < groups) wide *= 2;
    out.threads = dim3(wide, block_size / wide);
    const unsigned across = (groups + wide - 1) / wide;
    const std::size_t deep = std::max<std::size_t>(rows / (out.threads.y * 4), 1);
    const std::size_t wanted = std::max<std::size_t>(132 * 4 / across, 1);  // a few blocks per multiprocessor
    out.blocks = dim3(across, static_cast<unsigned>(std::min(deep, wanted)));
    return out;
}

// ---- pooling: one thread for each window and pack of channels

template <class T>
__global__ void max_pool_kernel(const T* in, T* out, std::size_t count, unsigned height, unsigned width,
                                unsigned packs, unsigned window) {
    const unsigned rows = height / window;
    const unsigned columns = width / window;
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const auto pack = static_cast<unsigned>(i % packs);
        const auto column = static_cast<unsigned>(i / packs % columns);
        const auto row = static_cast<unsigned>(i / packs / columns % rows);
        const std::size_t n = i / packs / columns / rows;
        Pack<T> best{};
        for (unsigned y = 0; y < window; ++y) {
            for (unsigned x = 0; x < window; ++x) {
                const std::size_t pixel =
                    (n * height + row * window + y) * width + column * window + x;
                const Pack<T> found = reinterpret_cast<const Pack<T>*>(in)[pixel * packs + pack];
#pragma unroll
                for (unsigned c = 0; c < Pack<T>::size; ++c) {
                    const float value = to_float(found.values[c]);
                    const bool first = x == 0 && y == 0;
                    if (first || value > to_float(best.values[c]) || value != value)
                        best.values[c] = found.values[c];
                }
            }
        }
        reinterpret_cast<Pack<T>*>(out)[i] = best;
    }
}

/// Also writes the elements of incomplete windows at the edges, whose gradient is zero.
template <class T>
__global__ void max_pool_backward_kernel(const T* in, const T* output_gradient, T* input_gradient,
                                         std::size_t count, unsigned height, unsigned width, unsigned packs,
                                         unsigned window, bool is_relu) {
    const unsigned rows = (height + window - 1) / window;
    const unsigned columns = (width + window - 1) / window;
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const auto pack = static_cast<unsigned>(i % packs);
        const auto column = static_cast<unsigned>(i / packs % columns);
        const auto row = static_cast<unsigned>(i / packs / columns % rows);
        const std::size_t n = i / packs / columns / rows;
        const bool is_whole = (row + 1) * window <= height && (column + 1) * window <= width;
        unsigned best_place[Pack<T>::size] = {};
        float best[Pack<T>::size] = {};
        Pack<T> gradient{};
        if (is_whole) {
            const std::size_t place =
                (n * (height / window) + row) * (width / window) + column;
            gradient = reinterpret_cast<const Pack<T>*>(output_gradient)[place * packs + pack];
            for (unsigned place_in = 0; place_in < window * window; ++place_in) {
                const std::size_t pixel = (n * height + row * window + place_in / window) * width +
                                          column * window + place_in % window;
                const Pack<T> found = reinterpret_cast<const Pack<T>*>(in)[pixel * packs + pack];
#pragma unroll
                for (unsigned c = 0; c < Pack<T>::size; ++c) {
                    const float value = to_float(found.values[c]);
                    if (place_in == 0 || value > best[c] || value != value) {
                        best[c] = value;
                        best_place[c] = place_in;
                    }
                }
            }
        }
        for (unsigned place_in = 0; place_in < window * window; ++place_in) {
            const unsigned y = row * window + place_in / window;
            const unsigned x = column * window + place_in % window;
            if (y >= height || x >= width) continue;
            Pack<T> out{};
#pragma unroll
            for (unsigned c = 0; c < Pack<T>::size; ++c) {
                const bool gets = is_whole && best_place[c] == place_in && !(is_relu && best[c] <= 0);
                out.values[c] = gets ? gradient.values[c] : from_float<T>(0.0F);
            }
            const std::size_t pixel = (n * height + y) * width + x;
            reinterpret_cast<Pack<T>*>(input_gradient)[pixel * packs + pack] = out;
        }
    }
}

// ---- convolution as a matrix product

/// Each thread copies one pack of channels for one position in the window.
template <class T>
__global__ void unfold_kernel(const T* images, T* rows, std::size_t count, Window window, unsigned packs) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const auto pack = static_cast<unsigned>(i % packs);
        std::size_t rest = i / packs;
        const auto kx = static_cast<unsigned>(rest % window.size);
        rest /= window.size;
        const auto ky = static_cast<unsigned>(rest % window.size);
        rest /= window.size;
        const auto x = static_cast<int>(rest % window.out_width * window.stride + kx) - window.padding;
        rest /= window.out_width;
        const auto y = static_cast<int>(rest % window.out_height * window.stride + ky) - window.padding;
        const std::size_t n = rest / window.out_height;
        Pack<T> found{};
        const bool is_inside = x >= 0 && y >= 0 && x < window.width && y < window.height;
        if (is_inside) {
            const std::size_t pixel = (n * static_cast<std::size_t>(window.height) + static_cast<std::size_t>(y)) *
                                          static_cast<std::size_t>(window.width) +
                                      static_cast<std::size_t>(x);
            found = reinterpret_cast<const Pack<T>*>(images)[pixel * packs + pack];
        }
        reinterpret_cast<Pack<T>*>(rows)[i] = found;
    }
}

// ---- the loss

/// Each warp processes one sample.
__global__ void softmax_kernel(const float* logits, const std::int32_t* labels, unsigned n, unsigned classes,
                               float* gradient, float* losses, float* hits) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= n) return;
    const float* own = logits + static_cast<std::size_t>(row) * classes;
    float largest = -INFINITY;
    unsigned where = classes;
    for (unsigned c = lane; c < classes; c += 32) {
        if (own[c] > largest || where == classes) {
            largest = own[c];
            where = c;
        }
    }
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, largest, distance);
        const unsigned place = __shfl_xor_sync(0xffffffff, where, distance);
        if (other > largest || (other == largest && place < where)) {
            largest = other;
            where = place;
        }
    }
    float sum = 0;
    for (unsigned c = lane; c < classes; c += 32) sum += expf(own[c] - largest);
    for (unsigned distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    const auto label = static_cast<unsigned>(labels[row]);
    const float share = 1.0F / static_cast<float>(n);
    float* out = gradient + static_cast<std::size_t>(row) * classes;
    for (unsigned c = lane; c < classes; c += 32)
        out[c] = (expf(own[c] - largest) / sum - (c == label ? 1.0F : 0.0F)) * share;
    if (lane != 0) return;
    losses[row] = label < classes ? logf(sum) + largest - own[label] : NAN;
    hits[row] = where == label ? 1.0F : 0.0F;
}

__global__ void add_losses_kernel(const float* losses, const float* hits, unsigned n, LossTotals* totals) {
    __shared__ double shared[2][32];
    double loss = 0;
    double correct = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        loss += losses[i];
        correct += hits[i];
    }
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        loss += __shfl_xor_sync(0xffffffff, loss, distance);
        correct += __shfl_xor_sync(0xffffffff, correct, distance);
    }
    if (threadIdx.x % 32 == 0) {
        shared[0][threadIdx.x / 32] = loss;
        shared[1][threadIdx.x / 32] = correct;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
        loss += shared[0][warp];
        correct += shared[1][warp];
    }
    totals->loss += loss;
    totals->correct += correct;
    totals->samples += n;
}

// ---- batches

__global__ void load_images_kernel(const std::uint8_t* pixels, const std::int32_t* labels,
                                   const std::uint32_t* indices, unsigned n, unsigned pixels_per_image,
                                   float scale, float* images, std::int32_t* labels_out) {
    const std::size_t count = static_cast<std::size_t>(n) * pixels_per_image;
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const std::size_t sample = i / pixels_per_image;
        const std::size_t pixel = i % pixels_per_image;
        const std::size_t from = indices != nullptr ? indices[sample] : sample;
        images[i] = static_cast<float>(pixels[from * pixels_per_image + pixel]) * scale;
        if (pixel == 0) labels_out[sample] = labels[from];
    }
}

__global__ void convert_all_kernel(const __grid_constant__ TensorTable<ConvertedTensor> table) {
    const auto [tensor, begin, end] = table.own_piece();
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(tensor.from) % 16 == 0 &&
                            reinterpret_cast<std::uintptr_t>(tensor.to) % 8 == 0;
    if (is_aligned && end - begin == dptk::cuda::detail::piece_elements) {
        const auto* from = reinterpret_cast<const float4*>(tensor.from + begin);
        auto* to = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(tensor.to) + begin);
        for (unsigned i = threadIdx.x; i < dptk::cuda::detail::piece_elements / 4; i += blockDim.x) {
            const float4 four = from[i];
            to[2 * i] = __floats2bfloat162_rn(four.x, four.y);
            to[2 * i + 1] = __floats2bfloat162_rn(four.z, four.w);
        }
        return;
    }
    for (std::size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
        static_cast<__nv_bfloat16*>(tensor.to)[i] = __float2bfloat16_rn(tensor.from[i]);
}

}  // namespace

void to_channels_last(const float* images, void* out, DType type, std::size_t n, std::size_t channels,
                      std::size_t padded, std::size_t pixels, StreamRef stream) {
    const std::size_t count = n * padded * pixels;
    with_type(type, [&]<class T>(T) {
        to_channels_last_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            images, static_cast<T*>(out), count, static_cast<unsigned>(channels),
            static_cast<unsigned>(padded), static_cast<unsigned>(pixels));
    });
    check_launch("to_channels_last_kernel");
}

void from_channels_last(const void* images, DType type, float* out, std::size_t n, std::size_t channels,
                        std::size_t padded, std::size_t pixels, StreamRef stream) {
    const std::size_t count = n * channels * pixels;
    with_type(type, [&]<class T>(T) {
        from_channels_last_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(images), out, count, static_cast<unsigned>(channels),
            static_cast<unsigned>(padded), static_cast<unsigned>(pixels));
    });
    check_launch("from_channels_last_kernel");
}

void convert(const void* from, DType from_type, void* to, DType to_type, std::size_t count,
             StreamRef stream) {
    with_type(from_type, [&]<class From>(From) {
        with_type(to_type, [&]<class To>(To) {
            convert_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
                static_cast<const From*>(from), static_cast<To*>(to), count);
        });
    });
    check_launch("convert_kernel");
}

void relu(const void* in, void* out, DType type, std::size_t count, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        relu_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(static_cast<const T*>(in),
                                                                       static_cast<T*>(out), count);
    });
    check_launch("relu_kernel");
}

void add_bias(void* data, const void* bias, DType type, std::size_t rows, std::size_t channels, bool is_relu,
              StreamRef stream) {
    const std::size_t count = rows * channels;
    with_type(type, [&]<class T>(T) {
        add_bias_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<T*>(data), static_cast<const T*>(bias), count, static_cast<unsigned>(channels),
            is_relu);
    });
    check_launch("add_bias_kernel");
}

void relu_backward(const void* output, void* gradient, DType type, std::size_t count, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        relu_backward_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(output), static_cast<T*>(gradient), count);
    });
    check_launch("relu_backward_kernel");
}

std::size_t bias_gradient_scratch(std::size_t rows, std::size_t channels, DType type) {
    return row_blocks(rows, channels, type).blocks.y * channels;
}

void bias_gradient(void* gradient, const void* output, DType type, std::size_t rows, std::size_t channels,
                   float* sums, float* scratch, StreamRef stream) {
    const RowBlocks how = row_blocks(rows, channels, type);
    const auto wide = static_cast<unsigned>(channels);
    with_type(type, [&]<class T>(T) {
        auto* own = static_cast<T*>(gradient);
        const auto* mask = static_cast<const T*>(output);
        if (how.group_size == 1) {
            bias_gradient_kernel<T, 1>
                <<<how.blocks, how.threads, 0, stream.get()>>>(own, mask, rows, wide, scratch);
        } else {
            bias_gradient_kernel<T, Pack<T>::size>
                <<<how.blocks, how.threads, 0, stream.get()>>>(own, mask, rows, wide, scratch);
        }
    });
    check_launch("bias_gradient_kernel");
    sum_rows_kernel<<<(wide + 31) / 32, dim3(32, 32), 0, stream.get()>>>(scratch, how.blocks.y, wide, sums);
    check_launch("sum_rows_kernel");
}

void max_pool(const void* in, void* out, DType type, const Pool& pool, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        const std::size_t packs = pool.channels / Pack<T>::size;
        const std::size_t count = pool.n * (pool.height / pool.window) * (pool.width / pool.window) * packs;
        max_pool_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(in), static_cast<T*>(out), count, static_cast<unsigned>(pool.height),
            static_cast<unsigned>(pool.width), static_cast<unsigned>(packs),
            static_cast<unsigned>(pool.window));
    });
    check_launch("max_pool_kernel");
}

void max_pool_backward(const void* in, const void* output_gradient, void* input_gradient, DType type,
                       const Pool& pool, bool is_relu, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        const auto windows = [&](std::size_t size) { return (size + pool.window - 1) / pool.window; };
        const std::size_t packs = pool.channels / Pack<T>::size;
        const std::size_t count = pool.n * windows(pool.height) * windows(pool.width) * packs;
        max_pool_backward_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(in), static_cast<const T*>(output_gradient),
            static_cast<T*>(input_gradient), count, static_cast<unsigned>(pool.height),
            static_cast<unsigned>(pool.width), static_cast<unsigned>(packs),
            static_cast<unsigned>(pool.window), is_relu);
    });
    check_launch("max_pool_backward_kernel");
}

void unfold(const void* images, void* rows, DType type, std::size_t n, std::size_t channels,
            const Window& window, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        const std::size_t packs = channels / Pack<T>::size;
        const std::size_t count = n * static_cast<std::size_t>(window.out_height) *
                                  static_cast<std::size_t>(window.out_width) *
                                  static_cast<std::size_t>(window.size) * static_cast<std::size_t>(window.size) *
                                  packs;
        unfold_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(images), static_cast<T*>(rows), count, window, static_cast<unsigned>(packs));
    });
    check_launch("unfold_kernel");
}

void softmax_cross_entropy(const float* logits, const std::int32_t* labels, std::size_t n, std::size_t classes,
                           float* gradient, LossTotals* totals, float* scratch, StreamRef stream) {
    const auto rows = static_cast<unsigned>(n);
    const unsigned per_block = block_size / 32;
    softmax_kernel<<<(rows + per_block - 1) / per_block, block_size, 0, stream.get()>>>(
        logits, labels, rows, static_cast<unsigned>(classes), gradient, scratch, scratch + n);
    check_launch("softmax_kernel");
    add_losses_kernel<<<1, 1024, 0, stream.get()>>>(scratch, scratch + n, rows, totals);
    check_launch("add_losses_kernel");
}

void load_images(const std::uint8_t* pixels, const std::int32_t* labels, const std::uint32_t* indices,
                 std::size_t n, std::size_t pixels_per_image, float scale, float* images,
                 std::int32_t* labels_out, StreamRef stream) {
    load_images_kernel<<<blocks_for(n * pixels_per_image), block_size, 0, stream.get()>>>(
        pixels, labels, indices, static_cast<unsigned>(n), static_cast<unsigned>(pixels_per_image), scale,
        images, labels_out);
    check_launch("load_images_kernel");
}

void convert_all(std::span<const ConvertedTensor> tensors, StreamRef stream) {
    for_each_tensor(tensors, [&](const TensorTable<ConvertedTensor>& table) {
        convert_all_kernel<<<table.blocks(), block_size, 0, stream.get()>>>(table);
        check_launch("convert_all_kernel");
    });
}

}  // namespace DPTK_NAMESPACE::nn::cuda::kernels
