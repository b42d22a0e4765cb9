// CUDA kernels of networks: layouts, elements, sums of channels, batch norm, pools, unfolding, loss and batches.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/multi_tensor.cuh"
#include "dptk/data/sample_random.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/pointwise.hpp"

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

/// Consecutive elements that a thread reads at once.
template <class T, unsigned count>
struct alignas(count * sizeof(T)) Group {
    T values[count];
};

/// The number of elements in 16 bytes.
template <class T>
constexpr unsigned pack_size = 16 / sizeof(T);

template <class T>
using Pack = Group<T, pack_size<T>>;

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

template <class Op, class T>
__global__ void pointwise_kernel(const T* in, T* out, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count())
        out[i] = from_float<T>(Op::value(to_float(in[i])));
}

template <class Op, class T>
__global__ void pointwise_backward_kernel(const T* kept, const T* gradient, T* input_gradient,
                                          std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        float derivative;
        if constexpr (nn::detail::DerivativeOfOutput<Op>) {
            derivative = Op::derivative_of_output(to_float(kept[i]));
        } else {
            derivative = Op::derivative(to_float(kept[i]));
        }
        input_gradient[i] = from_float<T>(to_float(gradient[i]) * derivative);
    }
}

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* sum, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count())
        sum[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

template <class T>
__global__ void add_bias_kernel(T* data, const T* bias, std::size_t count, unsigned channels, bool is_relu) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const float x = to_float(data[i]) + (bias != nullptr ? to_float(bias[i % channels]) : 0.0F);
        data[i] = from_float<T>(is_relu && x < 0 ? 0.0F : x);
    }
}

/// Numbers elements as in row-major memory, so that all backends drop the same ones.
template <class T>
__global__ void dropout_kernel(const T* in, T* out, DropoutCall call) {
    const std::size_t count = call.n * call.pixels * call.padded;
    const auto scale = static_cast<float>(1 / (1 - call.p));
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const std::size_t channel = i % call.padded;
        const std::size_t pixel = i / call.padded % call.pixels;
        const std::size_t n = i / call.padded / call.pixels;
        SampleRandom random(call.seed, call.step, (n * call.channels + channel) * call.pixels + pixel);
        out[i] = from_float<T>(random.unit() < call.p ? 0.0F : to_float(in[i]) * scale);
    }
}

// ---- sums over rows

/// Computes partial sums over the rows of [rows, channels]: `add(place, channel, sums)` adds the terms of
/// the group of `size` channels at `place`, whose first one is `channel`. Blocks with the same blockIdx.y
/// write the same part of `partial`, [gridDim.y, terms, channels]. Threads that differ in x sum different
/// channels; threads that differ in y sum different rows of the same channels.
template <unsigned size, unsigned terms, class Add>
__global__ void channel_sums_kernel(Add add, std::size_t rows, unsigned channels, float* partial) {
    __shared__ float shared[block_size * size];
    const unsigned group = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned groups = channels / size;
    float own[terms][size] = {};
    if (group < groups) {
        const std::size_t step = static_cast<std::size_t>(gridDim.y) * blockDim.y;
        for (std::size_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step)
            add(row * groups + group, group * size, own);
    }
    for (unsigned term = 0; term < terms; ++term) {
        __syncthreads();
        const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
        for (unsigned i = 0; i < size; ++i) shared[place * size + i] = own[term][i];
        __syncthreads();
        if (threadIdx.y != 0 || group >= groups) continue;
        float* const out = partial + (static_cast<std::size_t>(blockIdx.y) * terms + term) * channels;
#pragma unroll
        for (unsigned i = 0; i < size; ++i) {
            float sum = own[term][i];
            for (unsigned y = 1; y < blockDim.y; ++y) sum += shared[(y * blockDim.x + threadIdx.x) * size + i];
            out[group * size + i] = sum;
        }
    }
}

/// Sums `rows` rows, and multiplies the sums by `scale`. Each block sums 32 columns, with 32 threads for each
/// column.
__global__ void sum_rows_kernel(const float* partial, unsigned rows, unsigned columns, float scale,
                                float* sums) {
    __shared__ float shared[32][33];
    const unsigned column = blockIdx.x * 32 + threadIdx.x;
    float own = 0;
    if (column < columns)
        for (unsigned row = threadIdx.y; row < rows; row += 32)
            own += partial[static_cast<std::size_t>(row) * columns + column];
    shared[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    for (unsigned y = 1; y < 32; ++y) own += shared[y][threadIdx.x];
    sums[column] = own * scale;
}

struct RowBlocks {
    dim3 threads;
    dim3 blocks;
};

[[nodiscard]] RowBlocks row_blocks(std::size_t rows, std::size_t groups) {
    RowBlocks out{};
    unsigned wide = 1;
    while (wide < 32 && wide < groups) wide *= 2;
    out.threads = dim3(wide, block_size / wide);
    const auto across = static_cast<unsigned>((groups + wide - 1) / wide);
    const std::size_t deep = std::max<std::size_t>(rows / (out.threads.y * 4), 1);
    const std::size_t wanted = std::max<std::size_t>(132 * 4 / across, 1);  // a few blocks per multiprocessor
    out.blocks = dim3(across, static_cast<unsigned>(std::min(deep, wanted)));
    return out;
}

/// Writes [terms, channels] to `sums`.
template <unsigned size, unsigned terms, class Add>
void channel_sums(const Add& add, std::size_t rows, std::size_t channels, float scale, float* sums,
                  float* scratch, StreamRef stream) {
    const RowBlocks how = row_blocks(rows, channels / size);
    channel_sums_kernel<size, terms><<<how.blocks, how.threads, 0, stream.get()>>>(
        add, rows, static_cast<unsigned>(channels), scratch);
    check_launch("channel_sums_kernel");
    const auto columns = static_cast<unsigned>(terms * channels);
    sum_rows_kernel<<<(columns + 31) / 32, dim3(32, 32), 0, stream.get()>>>(scratch, how.blocks.y, columns,
                                                                            scale, sums);
    check_launch("sum_rows_kernel");
}

/// The terms of a bias's gradient.
template <class T, unsigned size>
struct AddGradient {
    const Group<T, size>* gradient;
    const Group<T, size>* output;
    Group<T, size>* masked;

    __device__ void operator()(std::size_t place, unsigned /*channel*/, float (&sums)[1][size]) const {
        Group<T, size> values = gradient[place];
        if (output != nullptr) {
            const Group<T, size> outputs = output[place];
#pragma unroll
            for (unsigned i = 0; i < size; ++i)
                if (to_float(outputs.values[i]) <= 0) values.values[i] = from_float<T>(0.0F);
            masked[place] = values;
        }
#pragma unroll
        for (unsigned i = 0; i < size; ++i) sums[0][i] += to_float(values.values[i]);
    }
};

// ---- batch norm

/// The terms of a mean, and those of a variance.
template <class T, unsigned size>
struct AddDeviation {
    const Group<T, size>* in;
    const float* means;

    __device__ void operator()(std::size_t place, unsigned channel, float (&sums)[1][size]) const {
        const Group<T, size> values = in[place];
#pragma unroll
        for (unsigned i = 0; i < size; ++i) {
            const float x = to_float(values.values[i]);
            const float difference = means != nullptr ? x - means[channel + i] : 0;
            sums[0][i] += means != nullptr ? difference * difference : x;
        }
    }
};

/// The elements that the backward of a batch norm reads, with the gradient after a ReLU's backward.
template <class T>
struct NormGradient {
    const Pack<T>* in;
    const Pack<T>* output;
    const Pack<T>* gradient;
    BatchNormCall call;

    /// Calls fn(i, normalized input, gradient) for each element of a pack.
    template <class Fn>
    __device__ void for_each(std::size_t place, unsigned channel, Fn&& fn) const {
        const Pack<T> inputs = in[place];
        const Pack<T> gradients = gradient[place];
        const Pack<T> outputs = call.is_relu ? output[place] : gradients;
#pragma unroll
        for (unsigned i = 0; i < pack_size<T>; ++i) {
            const float x = (to_float(inputs.values[i]) - call.means[channel + i]) * call.factors[channel + i];
            const bool passes = !call.is_relu || to_float(outputs.values[i]) > 0;
            fn(i, x, passes ? to_float(gradients.values[i]) : 0.0F);
        }
    }

    __device__ void operator()(std::size_t place, unsigned channel, float (&sums)[2][pack_size<T>]) const {
        for_each(place, channel, [&](unsigned i, float x, float g) {
            sums[0][i] += g;
            sums[1][i] += g * x;
        });
    }
};

__global__ void batch_norm_factors_kernel(const float* means, const float* variances, float eps,
                                          float* factors, RunningState running, float momentum, float unbiased,
                                          unsigned channels) {
    const auto c = static_cast<unsigned>(thread_index());
    if (c >= channels) return;
    factors[c] = 1 / sqrtf(variances[c] + eps);
    if (momentum == 0) return;
    running.mean[c] = (1 - momentum) * running.mean[c] + momentum * means[c];
    running.variance[c] = (1 - momentum) * running.variance[c] + momentum * unbiased * variances[c];
    if (c == 0) ++*running.batch_count;
}

template <class T>
__global__ void batch_norm_kernel(const Pack<T>* in, Pack<T>* out, BatchNormCall call, std::size_t packs) {
    const std::size_t packs_per_row = call.channels / pack_size<T>;
    for (std::size_t place = thread_index(); place < packs; place += thread_count()) {
        const auto channel = static_cast<unsigned>(place % packs_per_row * pack_size<T>);
        const Pack<T> values = in[place];
        Pack<T> result;
#pragma unroll
        for (unsigned i = 0; i < pack_size<T>; ++i) {
            const unsigned c = channel + i;
            const float y =
                (to_float(values.values[i]) - call.means[c]) * call.factors[c] * call.weight[c] + call.bias[c];
            result.values[i] = from_float<T>(call.is_relu && y < 0 ? 0.0F : y);
        }
        out[place] = result;
    }
}

template <class T>
__global__ void batch_norm_backward_kernel(NormGradient<T> from, Pack<T>* input_gradient, const float* sums,
                                           float rest, std::size_t packs) {
    const std::size_t packs_per_row = from.call.channels / pack_size<T>;
    for (std::size_t place = thread_index(); place < packs; place += thread_count()) {
        const auto channel = static_cast<unsigned>(place % packs_per_row * pack_size<T>);
        Pack<T> result;
        from.for_each(place, channel, [&](unsigned i, float x, float g) {
            const unsigned c = channel + i;
            const float centered = g - rest * (sums[c] + x * sums[from.call.channels + c]);
            result.values[i] = from_float<T>(centered * from.call.factors[c] * from.call.weight[c]);
        });
        input_gradient[place] = result;
    }
}

// ---- pools: one thread for each pack of channels of an output, or in backward of an input

/// The place of a pack in images.
struct Position {
    unsigned pack;
    int x;
    int y;
    std::size_t n;
};

[[nodiscard]] __device__ Position position(std::size_t i, unsigned packs, int height, int width) {
    return {static_cast<unsigned>(i % packs), static_cast<int>(i / packs % static_cast<unsigned>(width)),
            static_cast<int>(i / packs / static_cast<unsigned>(width) % static_cast<unsigned>(height)),
            i / packs / static_cast<unsigned>(width) / static_cast<unsigned>(height)};
}

/// Returns the index of a pack in images.
[[nodiscard]] __device__ std::size_t index(const Position& at, unsigned packs, int height, int width) {
    return ((at.n * static_cast<std::size_t>(height) + static_cast<std::size_t>(at.y)) *
                static_cast<std::size_t>(width) +
            static_cast<std::size_t>(at.x)) *
               packs +
           at.pack;
}

/// Calls fn(input, place) for each element of an output's window that is not in the padding.
template <class Fn>
__device__ void for_each_input(const Windows& w, unsigned packs, const Position& output, Fn&& fn) {
    for (int ky = 0; ky < w.kernel_height; ++ky) {
        const int y = output.y * w.stride_height - w.padding_height + ky;
        if (y < 0 || y >= w.height) continue;
        for (int kx = 0; kx < w.kernel_width; ++kx) {
            const int x = output.x * w.stride_width - w.padding_width + kx;
            if (x < 0 || x >= w.width) continue;
            fn(index({output.pack, x, y, output.n}, packs, w.height, w.width), ky * w.kernel_width + kx);
        }
    }
}

/// Calls fn(output, place) for each window that has the input, where `place` is the input's place in it.
template <class Fn>
__device__ void for_each_output(const Windows& w, unsigned packs, const Position& input, Fn&& fn) {
    const int y = input.y + w.padding_height;
    const int x = input.x + w.padding_width;
    const int first_row = y < w.kernel_height ? 0 : (y - w.kernel_height) / w.stride_height + 1;
    const int first_column = x < w.kernel_width ? 0 : (x - w.kernel_width) / w.stride_width + 1;
    for (int row = first_row; row < w.out_height && row * w.stride_height <= y; ++row) {
        for (int column = first_column; column < w.out_width && column * w.stride_width <= x; ++column)
            fn(index({input.pack, column, row, input.n}, packs, w.out_height, w.out_width),
               (y - row * w.stride_height) * w.kernel_width + x - column * w.stride_width);
    }
}

template <class T>
__global__ void max_pool_kernel(const Pack<T>* in, Pack<T>* out, Group<std::uint16_t, pack_size<T>>* places,
                                Windows windows, unsigned packs, std::size_t count) {
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        Pack<T> best{};
        Group<std::uint16_t, pack_size<T>> best_places{};
        bool is_first = true;
        for_each_input(windows, packs, position(i, packs, windows.out_height, windows.out_width),
                       [&](std::size_t input, int place) {
                           const Pack<T> found = in[input];
#pragma unroll
                           for (unsigned c = 0; c < pack_size<T>; ++c) {
                               const float value = to_float(found.values[c]);
                               if (!is_first && !(value > to_float(best.values[c])) && value == value) continue;
                               best.values[c] = found.values[c];
                               best_places.values[c] = static_cast<std::uint16_t>(place);
                           }
                           is_first = false;
                       });
        out[i] = best;
        places[i] = best_places;
    }
}

template <class T>
__global__ void avg_pool_kernel(const Pack<T>* in, Pack<T>* out, Windows windows, unsigned packs,
                                std::size_t count) {
    const float share = 1.0F / static_cast<float>(windows.kernel_height * windows.kernel_width);
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        float sums[pack_size<T>] = {};
        for_each_input(windows, packs, position(i, packs, windows.out_height, windows.out_width),
                       [&](std::size_t input, int) {
                           const Pack<T> found = in[input];
#pragma unroll
                           for (unsigned c = 0; c < pack_size<T>; ++c) sums[c] += to_float(found.values[c]);
                       });
        Pack<T> result;
#pragma unroll
        for (unsigned c = 0; c < pack_size<T>; ++c) result.values[c] = from_float<T>(sums[c] * share);
        out[i] = result;
    }
}

/// For a max pool, `places` has the place of each window's maximum; for an average pool, it is null.
template <class T>
__global__ void pool_backward_kernel(const Pack<T>* gradient, const Group<std::uint16_t, pack_size<T>>* places,
                                     Pack<T>* input_gradient, Windows windows, unsigned packs,
                                     std::size_t count) {
    const float share =
        places != nullptr ? 1.0F : 1.0F / static_cast<float>(windows.kernel_height * windows.kernel_width);
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        float sums[pack_size<T>] = {};
        for_each_output(windows, packs, position(i, packs, windows.height, windows.width),
                        [&](std::size_t output, int place) {
                            const Pack<T> found = gradient[output];
                            Group<std::uint16_t, pack_size<T>> maxima{};
                            if (places != nullptr) maxima = places[output];
#pragma unroll
                            for (unsigned c = 0; c < pack_size<T>; ++c)
                                if (places == nullptr || maxima.values[c] == place)
                                    sums[c] += to_float(found.values[c]);
                        });
        Pack<T> result;
#pragma unroll
        for (unsigned c = 0; c < pack_size<T>; ++c) result.values[c] = from_float<T>(sums[c] * share);
        input_gradient[i] = result;
    }
}

// ---- convolution as a matrix product

/// Each thread copies one pack of channels for one position in the window.
template <class T>
__global__ void unfold_kernel(const Pack<T>* images, Pack<T>* rows, Windows w, unsigned packs,
                              std::size_t count) {
    const auto area = static_cast<unsigned>(w.kernel_height * w.kernel_width);
    for (std::size_t i = thread_index(); i < count; i += thread_count()) {
        const auto place = static_cast<int>(i / packs % area);
        const Position output = position(i / packs / area, 1, w.out_height, w.out_width);
        const int y = output.y * w.stride_height - w.padding_height + place / w.kernel_width * w.dilation_height;
        const int x = output.x * w.stride_width - w.padding_width + place % w.kernel_width * w.dilation_width;
        Pack<T> found{};
        if (x >= 0 && y >= 0 && x < w.width && y < w.height)
            found = images[index({static_cast<unsigned>(i % packs), x, y, output.n}, packs, w.height, w.width)];
        rows[i] = found;
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

template <class Op>
void pointwise(const void* in, void* out, DType type, std::size_t count, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        pointwise_kernel<Op><<<blocks_for(count), block_size, 0, stream.get()>>>(static_cast<const T*>(in),
                                                                                static_cast<T*>(out), count);
    });
    check_launch("pointwise_kernel");
}

template <class Op>
void pointwise_backward(const void* kept, const void* gradient, void* input_gradient, DType type,
                        std::size_t count, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        pointwise_backward_kernel<Op><<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(kept), static_cast<const T*>(gradient), static_cast<T*>(input_gradient),
            count);
    });
    check_launch("pointwise_backward_kernel");
}

#define DPTK_INSTANTIATE(Op)                                                                       \
    template void pointwise<Op>(const void*, void*, DType, std::size_t, StreamRef);                \
    template void pointwise_backward<Op>(const void*, const void*, void*, DType, std::size_t, StreamRef);
DPTK_INSTANTIATE(ReLU)
DPTK_INSTANTIATE(ReLU6)
DPTK_INSTANTIATE(SiLU)
#undef DPTK_INSTANTIATE

void add(const void* a, const void* b, void* sum, DType type, std::size_t count, StreamRef stream) {
    with_type(type, [&]<class T>(T) {
        add_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(
            static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(sum), count);
    });
    check_launch("add_kernel");
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

void dropout(const void* in, void* out, DType type, const DropoutCall& call, StreamRef stream) {
    const std::size_t count = call.n * call.pixels * call.padded;
    with_type(type, [&]<class T>(T) {
        dropout_kernel<<<blocks_for(count), block_size, 0, stream.get()>>>(static_cast<const T*>(in),
                                                                          static_cast<T*>(out), call);
    });
    check_launch("dropout_kernel");
}

std::size_t channel_sums_scratch(std::size_t rows, std::size_t channels, DType type) {
    const std::size_t pack = type == DType::bf16 ? 8 : 4;
    return row_blocks(rows, channels % pack == 0 ? channels / pack : channels).blocks.y * channels;
}

void bias_gradient(const void* gradient, const void* output, void* masked, DType type, std::size_t rows,
                   std::size_t channels, float* sums, float* scratch, StreamRef stream) {
    const auto with_size = [&]<class T, unsigned size>() {
        using Elements = Group<T, size>;
        channel_sums<size, 1>(
            AddGradient<T, size>{static_cast<const Elements*>(gradient), static_cast<const Elements*>(output),
                                 static_cast<Elements*>(masked)},
            rows, channels, 1, sums, scratch, stream);
    };
    with_type(type, [&]<class T>(T) {
        if (channels % pack_size<T> == 0) {
            with_size.template operator()<T, pack_size<T>>();
        } else {
            with_size.template operator()<T, 1>();
        }
    });
}

void batch_norm_sums(const void* in, const BatchNormCall& call, float scale, float* sums, float* scratch,
                     StreamRef stream) {
    with_type(call.type, [&]<class T>(T) {
        channel_sums<pack_size<T>, 1>(
            AddDeviation<T, pack_size<T>>{static_cast<const Pack<T>*>(in), call.means}, call.rows,
            call.channels, scale, sums, scratch, stream);
    });
}

void batch_norm_factors(const float* means, const float* variances, float eps, float* factors,
                        const RunningState& running, float momentum, float unbiased, std::size_t channels,
                        StreamRef stream) {
    const auto count = static_cast<unsigned>(channels);
    batch_norm_factors_kernel<<<(count + block_size - 1) / block_size, block_size, 0, stream.get()>>>(
        means, variances, eps, factors, running, momentum, unbiased, count);
    check_launch("batch_norm_factors_kernel");
}

void batch_norm(const void* in, void* out, const BatchNormCall& call, StreamRef stream) {
    with_type(call.type, [&]<class T>(T) {
        const std::size_t packs = call.rows * call.channels / pack_size<T>;
        batch_norm_kernel<T><<<blocks_for(packs), block_size, 0, stream.get()>>>(
            static_cast<const Pack<T>*>(in), static_cast<Pack<T>*>(out), call, packs);
    });
    check_launch("batch_norm_kernel");
}

namespace {

template <class T>
[[nodiscard]] NormGradient<T> norm_gradient(const void* in, const void* output, const void* gradient,
                                            const BatchNormCall& call) {
    return {static_cast<const Pack<T>*>(in), static_cast<const Pack<T>*>(output),
            static_cast<const Pack<T>*>(gradient), call};
}

}  // namespace

void batch_norm_gradient_sums(const void* in, const void* output, const void* gradient,
                              const BatchNormCall& call, float* sums, float* scratch, StreamRef stream) {
    with_type(call.type, [&]<class T>(T) {
        channel_sums<pack_size<T>, 2>(norm_gradient<T>(in, output, gradient, call), call.rows, call.channels, 1,
                                      sums, scratch, stream);
    });
}

void batch_norm_backward(const void* in, const void* output, const void* gradient, void* input_gradient,
                         const BatchNormCall& call, const float* sums, float rest, StreamRef stream) {
    with_type(call.type, [&]<class T>(T) {
        const std::size_t packs = call.rows * call.channels / pack_size<T>;
        batch_norm_backward_kernel<T><<<blocks_for(packs), block_size, 0, stream.get()>>>(
            norm_gradient<T>(in, output, gradient, call), static_cast<Pack<T>*>(input_gradient), sums, rest,
            packs);
    });
    check_launch("batch_norm_backward_kernel");
}

namespace {

/// Calls launch(element, packs of a pixel, all packs of images of this height and width).
template <class Launch>
void for_packs(DType type, const Windows& windows, int height, int width, Launch&& launch) {
    with_type(type, [&]<class T>(T element) {
        const std::size_t packs = windows.channels / pack_size<T>;
        const std::size_t pixels = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
        launch(element, static_cast<unsigned>(packs), windows.n * pixels * packs);
    });
}

}  // namespace

void max_pool(const void* in, void* out, std::uint16_t* places, DType type, const Windows& windows,
              StreamRef stream) {
    for_packs(type, windows, windows.out_height, windows.out_width,
              [&]<class T>(T, unsigned packs, std::size_t count) {
                  max_pool_kernel<T><<<blocks_for(count), block_size, 0, stream.get()>>>(
                      static_cast<const Pack<T>*>(in), static_cast<Pack<T>*>(out),
                      reinterpret_cast<Group<std::uint16_t, pack_size<T>>*>(places), windows, packs, count);
              });
    check_launch("max_pool_kernel");
}

void avg_pool(const void* in, void* out, DType type, const Windows& windows, StreamRef stream) {
    for_packs(type, windows, windows.out_height, windows.out_width,
              [&]<class T>(T, unsigned packs, std::size_t count) {
                  avg_pool_kernel<T><<<blocks_for(count), block_size, 0, stream.get()>>>(
                      static_cast<const Pack<T>*>(in), static_cast<Pack<T>*>(out), windows, packs, count);
              });
    check_launch("avg_pool_kernel");
}

void max_pool_backward(const void* gradient, const std::uint16_t* places, void* input_gradient, DType type,
                       const Windows& windows, StreamRef stream) {
    for_packs(type, windows, windows.height, windows.width,
              [&]<class T>(T, unsigned packs, std::size_t count) {
                  pool_backward_kernel<T><<<blocks_for(count), block_size, 0, stream.get()>>>(
                      static_cast<const Pack<T>*>(gradient),
                      reinterpret_cast<const Group<std::uint16_t, pack_size<T>>*>(places),
                      static_cast<Pack<T>*>(input_gradient), windows, packs, count);
              });
    check_launch("pool_backward_kernel");
}

void avg_pool_backward(const void* gradient, void* input_gradient, DType type, const Windows& windows,
                       StreamRef stream) {
    max_pool_backward(gradient, nullptr, input_gradient, type, windows, stream);
}

void unfold(const void* images, void* rows, DType type, const Windows& windows, StreamRef stream) {
    for_packs(type, windows, windows.out_height, windows.out_width,
              [&]<class T>(T, unsigned packs, std::size_t count) {
                  const std::size_t all = count * static_cast<std::size_t>(windows.kernel_height) *
                                          static_cast<std::size_t>(windows.kernel_width);
                  unfold_kernel<T><<<blocks_for(all), block_size, 0, stream.get()>>>(
                      static_cast<const Pack<T>*>(images), static_cast<Pack<T>*>(rows), windows, packs, all);
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
