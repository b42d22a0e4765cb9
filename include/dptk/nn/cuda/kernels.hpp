/// Host functions that launch the kernels of networks on a GPU; kernels.cu has the kernels. Each
/// function enqueues its work on a stream and returns. Pointers are to device memory. `type`, f32 or bf16, is
/// the element type of activations. Activations that are images are channels-last: [n, height, width,
/// channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::nn::cuda::kernels {

/// Converts row-major images [n, channels, height, width] to channels-last images with `padded` channels. The
/// additional channels are zero.
void to_channels_last(const float* images, void* out, DType type, std::size_t n, std::size_t channels,
                      std::size_t padded, std::size_t pixels, StreamRef stream);

/// Converts channels-last images back to row-major ones, without the padding.
void from_channels_last(const void* images, DType type, float* out, std::size_t n, std::size_t channels,
                        std::size_t padded, std::size_t pixels, StreamRef stream);

/// Converts elements to another type.
void convert(const void* from, DType from_type, void* to, DType to_type, std::size_t count, StreamRef stream);

/// Computes Op::value of each element, for Op = ReLU, ReLU6 or SiLU. `in` and `out` may be the same memory.
template <class Op>
void pointwise(const void* in, void* out, DType type, std::size_t count, StreamRef stream);

/// Multiplies a gradient by the derivative of Op. `kept` has the outputs if the derivative is a function of
/// the output, otherwise the inputs. `gradient` and `input_gradient` may be the same memory.
template <class Op>
void pointwise_backward(const void* kept, const void* gradient, void* input_gradient, DType type,
                        std::size_t count, StreamRef stream);

/// Adds two values. All three may be the same memory.
void add(const void* a, const void* b, void* sum, DType type, std::size_t count, StreamRef stream);

/// Adds bias[channel] to each row of data [rows, channels], if `bias` is not null; with `is_relu`, then
/// applies max(x, 0).
void add_bias(void* data, const void* bias, DType type, std::size_t rows, std::size_t channels, bool is_relu,
              StreamRef stream);

/// Returns the number of floats of scratch memory that sums over the rows of [rows, channels] need, for each
/// sum of a channel.
[[nodiscard]] std::size_t channel_sums_scratch(std::size_t rows, std::size_t channels, DType type);

/// Sums a gradient [rows, channels] over the rows, in f32 and in a fixed order. If `output` is not null, the
/// gradient counts as zero where the output is zero, and this masked gradient is written to `masked`.
void bias_gradient(const void* gradient, const void* output, void* masked, DType type, std::size_t rows,
                   std::size_t channels, float* sums, float* scratch, StreamRef stream);

/// The size of a dropout's input, and what its random numbers depend on: see nn/reference.
struct DropoutCall {
    std::size_t n = 0;
    std::size_t channels = 0;
    std::size_t padded = 0;
    std::size_t pixels = 1;
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    double p = 0;
};

/// Sets elements to 0 with probability p, and divides the others by 1 - p. Repeated calls drop the same
/// elements. `in` and `out` may be the same memory.
void dropout(const void* in, void* out, DType type, const DropoutCall& call, StreamRef stream);

/// A batch norm of [rows, channels]. `channels` times the element size must be a multiple of 16 bytes. All
/// pointers but `output` are to f32 values of the channels.
struct BatchNormCall {
    DType type = DType::f32;
    std::size_t rows = 0;
    std::size_t channels = 0;
    const float* means = nullptr;
    const float* factors = nullptr;  ///< 1 / √(variance + eps)
    const float* weight = nullptr;
    const float* bias = nullptr;
    bool is_relu = false;  ///< Whether a ReLU is computed together with the norm.
};

/// Computes, for each channel, `scale` times the sum of (x - mean)², or of x if `means` is null.
void batch_norm_sums(const void* in, const BatchNormCall& call, float scale, float* sums, float* scratch,
                     StreamRef stream);

/// The running statistics of a batch norm, in device memory.
struct RunningState {
    float* mean = nullptr;
    float* variance = nullptr;
    std::int64_t* batch_count = nullptr;
};

/// Computes the factors of the channels; if `momentum` is not 0, also updates the running statistics, where
/// `unbiased` is the factor from the biased to the unbiased variance.
void batch_norm_factors(const float* means, const float* variances, float eps, float* factors,
                        const RunningState& running, float momentum, float unbiased, std::size_t channels,
                        StreamRef stream);

/// Computes (x - mean) · factor · weight + bias.
void batch_norm(const void* in, void* out, const BatchNormCall& call, StreamRef stream);

/// Computes the sums of the gradient over the rows, [channels], and those of its products with the
/// normalized input, [channels]. `output` is read only with a ReLU. `scratch` has room for two sums.
void batch_norm_gradient_sums(const void* in, const void* output, const void* gradient,
                              const BatchNormCall& call, float* sums, float* scratch, StreamRef stream);

/// Computes factor · weight · (gradient - rest · (sums[0] + normalized input · sums[1])). `gradient` and
/// `input_gradient` may be the same memory.
void batch_norm_backward(const void* in, const void* output, const void* gradient, void* input_gradient,
                         const BatchNormCall& call, const float* sums, float rest, StreamRef stream);

/// The windows of a convolution or a pool on channels-last images [n, height, width, channels]. `channels`
/// times the element size must be a multiple of 16 bytes.
struct Windows {
    std::size_t n = 0;
    std::size_t channels = 0;
    int height = 0;
    int width = 0;
    int out_height = 0;
    int out_width = 0;
    int kernel_height = 1;
    int kernel_width = 1;
    int stride_height = 1;
    int stride_width = 1;
    int padding_height = 0;
    int padding_width = 0;
    int dilation_height = 1;
    int dilation_width = 1;
};

/// Computes the largest value of each window, and writes its place in the window to `places`, which has as
/// many elements as `out`. Of equal values, the first one counts; NaN is larger than all others.
void max_pool(const void* in, void* out, std::uint16_t* places, DType type, const Windows& windows,
              StreamRef stream);

void max_pool_backward(const void* gradient, const std::uint16_t* places, void* input_gradient, DType type,
                       const Windows& windows, StreamRef stream);

/// Computes the mean of each window, in which padding counts as zeros.
void avg_pool(const void* in, void* out, DType type, const Windows& windows, StreamRef stream);

void avg_pool_backward(const void* gradient, void* input_gradient, DType type, const Windows& windows,
                       StreamRef stream);

/// Unfolds images (im2col) to the rows of a matrix, one row for each output position: [n · out_height ·
/// out_width, kernel_height · kernel_width · channels]. Elements outside the image are zero.
void unfold(const void* images, void* rows, DType type, const Windows& windows, StreamRef stream);

/// Sums over the samples since the totals were zeroed.
struct LossTotals {
    double loss = 0;
    double correct = 0;
    double samples = 0;
};

/// Computes the softmax cross-entropy of logits [n, classes], like nn::softmax_cross_entropy: writes the
/// gradient of the mean to `gradient`, and adds to the totals. A label that is not a class makes the loss
/// NaN. `scratch` has 2 n floats.
void softmax_cross_entropy(const float* logits, const std::int32_t* labels, std::size_t n,
                           std::size_t classes, float* gradient, LossTotals* totals, float* scratch,
                           StreamRef stream);

/// Loads the images and labels at indices[0..n) of a dataset, with every pixel multiplied by `scale`. If
/// `indices` is null, loads the first n.
void load_images(const std::uint8_t* pixels, const std::int32_t* labels, const std::uint32_t* indices,
                 std::size_t n, std::size_t pixels_per_image, float scale, float* images,
                 std::int32_t* labels_out, StreamRef stream);

/// A tensor of f32 values to convert to bf16; convert_all() converts many tensors in one launch.
struct ConvertedTensor {
    const float* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
};
void convert_all(std::span<const ConvertedTensor> tensors, StreamRef stream);

}  // namespace DPTK_NAMESPACE::nn::cuda::kernels
