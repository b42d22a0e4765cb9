/// The kernels of the trainer on a GPU, as plain host functions: kernels.cu has them. Each puts its work on a
/// stream and returns; pointers are to device memory unless said otherwise. Activations are f32 or bf16, as
/// `type` says, and images among them lie channels-last: [n, height, width, channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::nn::cuda::kernels {

/// Images of `channels` channels, row-major [n, channels, height, width], as channels-last ones with `padded`
/// channels, of which the last are zero.
void to_channels_last(const float* images, void* out, DType type, std::size_t n, std::size_t channels,
                      std::size_t padded, std::size_t pixels, StreamRef stream);

/// The way back; padding is left out.
void from_channels_last(const void* images, DType type, float* out, std::size_t n, std::size_t channels,
                        std::size_t padded, std::size_t pixels, StreamRef stream);

/// Elements of another type.
void convert(const void* from, DType from_type, void* to, DType to_type, std::size_t count, StreamRef stream);

/// max(x, 0); `in` may be `out`.
void relu(const void* in, void* out, DType type, std::size_t count, StreamRef stream);

/// Adds bias[channel] to each row of data [rows, channels], and, with `is_relu`, makes it max(x, 0).
void add_bias(void* data, const void* bias, DType type, std::size_t rows, std::size_t channels, bool is_relu,
              StreamRef stream);

/// Zeroes the gradient where the output is zero.
void relu_backward(const void* output, void* gradient, DType type, std::size_t count, StreamRef stream);

/// How many floats bias_gradient needs besides.
[[nodiscard]] std::size_t bias_gradient_scratch(std::size_t rows, std::size_t channels, DType type);

/// The sums over the rows of gradient [rows, channels], in f32 and in an order of their own. Where `output`
/// is not null, the gradient becomes zero first where that is.
void bias_gradient(void* gradient, const void* output, DType type, std::size_t rows, std::size_t channels,
                   float* sums, float* scratch, StreamRef stream);

/// Channels-last images and their windows.
struct Pool {
    std::size_t n = 0;
    std::size_t height = 0;
    std::size_t width = 0;
    /// A multiple of 16 bytes.
    std::size_t channels = 0;
    std::size_t window = 0;
};

void max_pool(const void* in, void* out, DType type, const Pool& pool, StreamRef stream);

/// The gradient of the input, everywhere. Of equal values the first one gets it; with `is_relu`, nothing that
/// is zero does.
void max_pool_backward(const void* in, const void* output_gradient, void* input_gradient, DType type,
                       const Pool& pool, bool is_relu, StreamRef stream);

/// What a convolution's window sees.
struct Window {
    int height = 0;
    int width = 0;
    int out_height = 0;
    int out_width = 0;
    int size = 0;
    int stride = 1;
    int padding = 0;
};

/// The images as the rows of a matrix, one for each place of the output: [n · out_height · out_width, size² ·
/// channels], what lies outside being zero. Channels are a multiple of 16 bytes.
void unfold(const void* images, void* rows, DType type, std::size_t n, std::size_t channels,
            const Window& window, StreamRef stream);

/// Sums over the samples since they were zeroed.
struct LossTotals {
    double loss = 0;
    double correct = 0;
    double samples = 0;
};

/// Softmax cross-entropy of logits [n, classes], as nn::softmax_cross_entropy has it: `gradient` becomes that
/// of the mean, and the totals grow. A label that is no class makes the loss NaN. `scratch` has 2 n floats.
void softmax_cross_entropy(const float* logits, const std::uint8_t* labels, std::size_t n,
                           std::size_t classes, float* gradient, LossTotals* totals, float* scratch,
                           StreamRef stream);

/// The images and labels number indices[0..n) of a dataset, every pixel multiplied by `scale`. `indices` may
/// be null: then the first n.
void load_images(const std::uint8_t* pixels, const std::uint8_t* labels, const std::uint32_t* indices,
                 std::size_t n, std::size_t pixels_per_image, float scale, float* images,
                 std::uint8_t* labels_out, StreamRef stream);

/// What an optimizer steps: f32, and the states as the optimizer has them.
struct OptimizerTensor {
    float* value = nullptr;
    const float* gradient = nullptr;
    float* first = nullptr;
    float* second = nullptr;
    std::size_t count = 0;
};

/// In device memory, so that it may change between launches of a graph.
struct OptimizerClock {
    /// Of the step that is taken next, from 1.
    long long step = 1;
    double lr = 0;
};

struct SgdStep {
    float momentum = 0;
    float weight_decay = 0;
};

/// As SGD has it; `first` is the momentum, null without one. Counts the clock's step on, behind it.
void sgd_step(std::span<const OptimizerTensor> tensors, const SgdStep& options, OptimizerClock* clock,
              StreamRef stream);

struct AdamStep {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    /// AdamW's, of the values.
    bool is_decoupled = false;
};

/// As Adam and AdamW have it.
void adam_step(std::span<const OptimizerTensor> tensors, const AdamStep& options, OptimizerClock* clock,
               StreamRef stream);

/// f32 values to bf16, many tensors in one pass.
struct ConvertedTensor {
    const float* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
};
void convert_all(std::span<const ConvertedTensor> tensors, StreamRef stream);

}  // namespace DPTK_NAMESPACE::nn::cuda::kernels
