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

/// Computes max(x, 0). `in` and `out` may be the same memory.
void relu(const void* in, void* out, DType type, std::size_t count, StreamRef stream);

/// Adds bias[channel] to each row of data [rows, channels]; with `is_relu`, then applies max(x, 0).
void add_bias(void* data, const void* bias, DType type, std::size_t rows, std::size_t channels, bool is_relu,
              StreamRef stream);

/// Zeroes the gradient where the output is zero.
void relu_backward(const void* output, void* gradient, DType type, std::size_t count, StreamRef stream);

/// Returns the number of floats of scratch memory that bias_gradient() needs.
[[nodiscard]] std::size_t bias_gradient_scratch(std::size_t rows, std::size_t channels, DType type);

/// Sums a gradient [rows, channels] over the rows, in f32 and in a fixed order. If `output` is not null,
/// first zeroes the gradient where the output is zero.
void bias_gradient(void* gradient, const void* output, DType type, std::size_t rows, std::size_t channels,
                   float* sums, float* scratch, StreamRef stream);

/// The sizes of channels-last images and of the pooling window.
struct Pool {
    std::size_t n = 0;
    std::size_t height = 0;
    std::size_t width = 0;
    /// `channels` times the element size must be a multiple of 16 bytes.
    std::size_t channels = 0;
    std::size_t window = 0;
};

void max_pool(const void* in, void* out, DType type, const Pool& pool, StreamRef stream);

/// Writes all elements of the input gradient. Of equal values in a window, the first one gets the gradient.
/// If `is_relu`, a window whose largest value is not positive gets no gradient, as in ReLU's backward pass.
void max_pool_backward(const void* in, const void* output_gradient, void* input_gradient, DType type,
                       const Pool& pool, bool is_relu, StreamRef stream);

/// The sizes of a convolution: input, output, kernel, stride and padding.
struct Window {
    int height = 0;
    int width = 0;
    int out_height = 0;
    int out_width = 0;
    int size = 0;
    int stride = 1;
    int padding = 0;
};

/// Unfolds images (im2col) to the rows of a matrix, one row for each output position: [n · out_height ·
/// out_width, size² · channels]. Elements outside the image are zero. `channels` times the element size
/// must be a multiple of 16 bytes.
void unfold(const void* images, void* rows, DType type, std::size_t n, std::size_t channels,
            const Window& window, StreamRef stream);

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
