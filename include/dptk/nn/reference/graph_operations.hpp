/// The operations of a Graph in plain loops, for any floating-point type: the definition that other backends
/// are compared with. Each operation has a forward and a backward for a batch of row-major inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/sample_random.hpp"
#include "dptk/nn/graph.hpp"

namespace DPTK_NAMESPACE::nn::reference {

/// Whether a network is trained: batch norms use the statistics of the batch, and dropout drops elements.
enum class Mode { train, evaluate };

/// What one operation of a network reads and writes.
template <std::floating_point T>
struct OperationMemory {
    std::vector<Tensor<T>> parameters;  ///< In the order of the specs.
    std::vector<Tensor<T>> gradients;   ///< Of the parameters.
    std::vector<Tensor<T>> statistics;  ///< The running mean and variance of a batch norm.
    std::int64_t batches = 0;           ///< The number of batches that the statistics have seen.
    Tensor<T> saved;                    ///< What forward keeps for backward.
    std::vector<std::size_t> places;    ///< For a max pool: where each output comes from.
    double count = 0;                   ///< For a batch norm: the elements of a channel, over all ranks.
};

/// The arguments of a forward or backward.
template <std::floating_point T>
struct OperationCall {
    std::size_t batch = 0;                     ///< The number of samples.
    std::span<const Shape> shapes = {};        ///< Of the inputs, without the batch dimension.
    std::span<const T* const> inputs = {};     ///< The inputs.
    std::span<T> output = {};                  ///< Written by forward.
    std::span<const T> output_gradient = {};   ///< Read by backward.
    std::span<T* const> input_gradients = {};  ///< Backward adds to these; null if one is not needed.
    Mode mode = Mode::train;                   ///< Of the forward.
    std::uint64_t seed = 0;                    ///< Of dropout, together with the step and the operation.
    std::int64_t step = 0;                     ///< The number of forward passes before this one.
    std::size_t node = 0;                      ///< The operation's index.
    /// Sums the numbers over all ranks, for a batch norm that is synchronized; may be empty.
    const std::function<void(std::span<double>)>& sum_over_ranks;
    OperationMemory<T>& memory;
};

template <std::floating_point T>
void forward(const operations::Input&, const OperationCall<T>&) {}
template <std::floating_point T>
void backward(const operations::Input&, const OperationCall<T>&) {}

template <std::floating_point T>
void forward(const operations::Linear& linear, const OperationCall<T>& call) {
    const std::size_t in = call.shapes[0][0], out = linear.out_features;
    const Tensor<T>& weight = call.memory.parameters[0];
    for (std::size_t n = 0; n < call.batch; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
            T sum = linear.bias ? call.memory.parameters[1][o] : T{0};
            for (std::size_t i = 0; i < in; ++i) sum += weight[o * in + i] * call.inputs[0][n * in + i];
            call.output[n * out + o] = sum;
        }
    }
}

template <std::floating_point T>
void backward(const operations::Linear& linear, const OperationCall<T>& call) {
    const std::size_t in = call.shapes[0][0], out = linear.out_features;
    const Tensor<T>& weight = call.memory.parameters[0];
    for (Tensor<T>& gradient : call.memory.gradients) gradient.fill(0);
    for (std::size_t n = 0; n < call.batch; ++n) {
        for (std::size_t o = 0; o < out; ++o) {
            const T gradient = call.output_gradient[n * out + o];
            if (linear.bias) call.memory.gradients[1][o] += gradient;
            for (std::size_t i = 0; i < in; ++i) {
                call.memory.gradients[0][o * in + i] += gradient * call.inputs[0][n * in + i];
                if (call.input_gradients[0] != nullptr)
                    call.input_gradients[0][n * in + i] += gradient * weight[o * in + i];
            }
        }
    }
}

/// Calls visit(output, weight, input) with the indices of each product of a convolution, and visit(output,
/// channel) via `begin` for each output before its products.
template <class Begin, class Visit>
void for_each_product(const operations::Conv2d& conv, std::size_t batch, const Shape& in, Begin&& begin,
                      Visit&& visit) {
    const Shape out = conv.output_shape({&in, 1});
    const std::size_t channels = in[0] / conv.groups, filters = out[0] / conv.groups;
    const auto [kernel_height, kernel_width] = conv.kernel_size;
    std::size_t output = 0;
    for (std::size_t n = 0; n < batch; ++n) {
        for (std::size_t o = 0; o < out[0]; ++o) {
            for (std::size_t y = 0; y < out[1]; ++y) {
                for (std::size_t x = 0; x < out[2]; ++x, ++output) {
                    begin(output, o);
                    for (std::size_t c = 0; c < channels; ++c) {
                        const std::size_t plane = n * in[0] + o / filters * channels + c;
                        for (std::size_t ky = 0; ky < kernel_height; ++ky) {
                            // Unsigned arithmetic wraps, so that positions in the padding are not below the
                            // size.
                            const std::size_t iy =
                                y * conv.stride.height + ky * conv.dilation.height - conv.padding.height;
                            if (iy >= in[1]) continue;
                            for (std::size_t kx = 0; kx < kernel_width; ++kx) {
                                const std::size_t ix =
                                    x * conv.stride.width + kx * conv.dilation.width - conv.padding.width;
                                if (ix >= in[2]) continue;
                                visit(output, ((o * channels + c) * kernel_height + ky) * kernel_width + kx,
                                      (plane * in[1] + iy) * in[2] + ix);
                            }
                        }
                    }
                }
            }
        }
    }
}

template <std::floating_point T>
void forward(const operations::Conv2d& conv, const OperationCall<T>& call) {
    const Tensor<T>& weight = call.memory.parameters[0];
    for_each_product(
        conv, call.batch, call.shapes[0],
        [&](std::size_t out, std::size_t channel) {
            call.output[out] = conv.bias ? call.memory.parameters[1][channel] : T{0};
        },
        [&](std::size_t out, std::size_t w, std::size_t in) {
            call.output[out] += weight[w] * call.inputs[0][in];
        });
}

template <std::floating_point T>
void backward(const operations::Conv2d& conv, const OperationCall<T>& call) {
    const Tensor<T>& weight = call.memory.parameters[0];
    for (Tensor<T>& gradient : call.memory.gradients) gradient.fill(0);
    for_each_product(
        conv, call.batch, call.shapes[0],
        [&](std::size_t out, std::size_t channel) {
            if (conv.bias) call.memory.gradients[1][channel] += call.output_gradient[out];
        },
        [&](std::size_t out, std::size_t w, std::size_t in) {
            const T gradient = call.output_gradient[out];
            call.memory.gradients[0][w] += gradient * call.inputs[0][in];
            if (call.input_gradients[0] != nullptr) call.input_gradients[0][in] += gradient * weight[w];
        });
}

/// Calls visit(channel, index) for each element of a batch of images.
template <class Visit>
void for_each_element(std::size_t batch, const Shape& shape, Visit&& visit) {
    const std::size_t plane = shape[1] * shape[2];
    for (std::size_t n = 0, i = 0; n < batch; ++n) {
        for (std::size_t c = 0; c < shape[0]; ++c) {
            for (std::size_t p = 0; p < plane; ++p, ++i) visit(c, i);
        }
    }
}

/// The factor 1 / √(variance + eps) and the mean of each channel, as saved by forward: all factors, then all
/// means.
template <std::floating_point T>
void forward(const operations::BatchNorm2d& norm, const OperationCall<T>& call) {
    const Shape& shape = call.shapes[0];
    const std::size_t channels = shape[0];
    OperationMemory<T>& memory = call.memory;
    memory.saved.resize(Shape{2, channels});
    const std::span<T> factors = memory.saved.values().first(channels),
                       means = memory.saved.values().last(channels);
    std::vector<double> mean(channels), variance(channels);
    if (call.mode == Mode::train) {
        const bool is_shared = norm.is_synchronized && call.sum_over_ranks;
        mean.push_back(static_cast<double>(call.batch * shape[1] * shape[2]));  // the count, behind the sums
        for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
            mean[c] += static_cast<double>(call.inputs[0][i]);
        });
        if (is_shared) call.sum_over_ranks(mean);
        const double count = memory.count = std::max(mean.back(), 1.0);
        for (double& value : mean) value /= count;
        for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
            const double difference = static_cast<double>(call.inputs[0][i]) - mean[c];
            variance[c] += difference * difference;
        });
        if (is_shared) call.sum_over_ranks(variance);
        ++memory.batches;
        const auto move = [&](T& running, double value) {
            running =
                static_cast<T>((1 - norm.momentum) * static_cast<double>(running) + norm.momentum * value);
        };
        for (std::size_t c = 0; c < channels; ++c) {
            move(memory.statistics[0][c], mean[c]);
            move(memory.statistics[1][c], variance[c] / std::max(count - 1, 1.0));
            variance[c] /= count;
        }
    } else {
        for (std::size_t c = 0; c < channels; ++c) {
            mean[c] = static_cast<double>(memory.statistics[0][c]);
            variance[c] = static_cast<double>(memory.statistics[1][c]);
        }
    }
    for (std::size_t c = 0; c < channels; ++c) {
        factors[c] = static_cast<T>(1 / std::sqrt(variance[c] + norm.eps));
        means[c] = static_cast<T>(mean[c]);
    }
    for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
        call.output[i] =
            (call.inputs[0][i] - means[c]) * factors[c] * memory.parameters[0][c] + memory.parameters[1][c];
    });
}

template <std::floating_point T>
void backward(const operations::BatchNorm2d& norm, const OperationCall<T>& call) {
    const Shape& shape = call.shapes[0];
    const std::size_t channels = shape[0];
    OperationMemory<T>& memory = call.memory;
    const std::span<const T> factors = memory.saved.values().first(channels),
                             means = memory.saved.values().last(channels);
    std::vector<double> sums(2 * channels);  // of the output gradient, and of it times the normalized input
    const std::span<double> sum = std::span(sums).first(channels), product = std::span(sums).last(channels);
    for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
        const double gradient = static_cast<double>(call.output_gradient[i]);
        sum[c] += gradient;
        product[c] += gradient * static_cast<double>((call.inputs[0][i] - means[c]) * factors[c]);
    });
    for (std::size_t c = 0; c < channels; ++c) {
        memory.gradients[0][c] = static_cast<T>(product[c]);
        memory.gradients[1][c] = static_cast<T>(sum[c]);
    }
    const bool trains = call.mode == Mode::train;  // in evaluation, mean and variance are constants
    if (trains && norm.is_synchronized && call.sum_over_ranks) call.sum_over_ranks(sums);
    if (call.input_gradients[0] == nullptr) return;
    const double rest = trains ? 1 / memory.count : 0;
    for_each_element(call.batch, shape, [&](std::size_t c, std::size_t i) {
        const double normalized = static_cast<double>((call.inputs[0][i] - means[c]) * factors[c]);
        const double centered =
            static_cast<double>(call.output_gradient[i]) - rest * (sum[c] + normalized * product[c]);
        call.input_gradients[0][i] += static_cast<T>(centered) * factors[c] * memory.parameters[0][c];
    });
}

/// Returns a pointwise function's value.
template <std::floating_point T>
[[nodiscard]] T value_of(operations::Pointwise function, T x) {
    switch (function) {
        case operations::Pointwise::relu: return std::max(x, T{0});
        case operations::Pointwise::relu6: return std::min(std::max(x, T{0}), T{6});
        case operations::Pointwise::sigmoid: return 1 / (1 + std::exp(-x));
    }
    return x;
}

/// Returns a pointwise function's derivative where it has the value y.
template <std::floating_point T>
[[nodiscard]] T derivative_of(operations::Pointwise function, T y) {
    switch (function) {
        case operations::Pointwise::relu: return y > 0 ? T{1} : T{0};
        case operations::Pointwise::relu6: return y > 0 && y < 6 ? T{1} : T{0};
        case operations::Pointwise::sigmoid: return y * (1 - y);
    }
    return 1;
}

template <std::floating_point T>
void forward(const operations::PointwiseFunction& pointwise, const OperationCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.output[i] = value_of(pointwise.function, call.inputs[0][i]);
}

template <std::floating_point T>
void backward(const operations::PointwiseFunction& pointwise, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.input_gradients[0][i] +=
            call.output_gradient[i] * derivative_of(pointwise.function, call.output[i]);
}

/// Calls visit(first, distance, count) for each group of elements over which a softmax goes.
template <class Visit>
void for_each_softmax(std::size_t batch, const Shape& shape, Visit&& visit) {
    const std::size_t distance = element_count(std::span(shape).subspan(1));
    for (std::size_t n = 0; n < batch; ++n) {
        for (std::size_t p = 0; p < distance; ++p) visit(n * shape[0] * distance + p, distance, shape[0]);
    }
}

template <std::floating_point T>
void forward(const operations::Softmax&, const OperationCall<T>& call) {
    for_each_softmax(call.batch, call.shapes[0],
                     [&](std::size_t first, std::size_t distance, std::size_t count) {
                         T largest = call.inputs[0][first];
                         for (std::size_t i = 1; i < count; ++i)
                             largest = std::max(largest, call.inputs[0][first + i * distance]);
                         T sum = 0;
                         for (std::size_t i = 0; i < count; ++i) {
                             const std::size_t place = first + i * distance;
                             sum += call.output[place] = std::exp(call.inputs[0][place] - largest);
                         }
                         for (std::size_t i = 0; i < count; ++i) call.output[first + i * distance] /= sum;
                     });
}

template <std::floating_point T>
void backward(const operations::Softmax&, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    for_each_softmax(
        call.batch, call.shapes[0], [&](std::size_t first, std::size_t distance, std::size_t count) {
            T mean = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t place = first + i * distance;
                mean += call.output[place] * call.output_gradient[place];
            }
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t place = first + i * distance;
                call.input_gradients[0][place] += call.output[place] * (call.output_gradient[place] - mean);
            }
        });
}

template <std::floating_point T>
void forward(const operations::Add&, const OperationCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.output[i] = call.inputs[0][i] + call.inputs[1][i];
}

template <std::floating_point T>
void backward(const operations::Add&, const OperationCall<T>& call) {
    for (T* const gradient : call.input_gradients) {
        if (gradient == nullptr) continue;
        for (std::size_t i = 0; i < call.output.size(); ++i) gradient[i] += call.output_gradient[i];
    }
}

/// Returns, for each element of a sample of the first input, the index in a sample of the second one.
[[nodiscard]] inline std::vector<std::size_t> broadcast_indices(const Shape& first, const Shape& second) {
    std::vector<std::size_t> indices(element_count(first));
    for (std::size_t i = 0; i < indices.size(); ++i) {
        std::size_t rest = i, step = 1;
        for (std::size_t d = first.size(); d-- > 0;) {
            const std::size_t place = rest % first[d];
            rest /= first[d];
            if (second[d] != 1) indices[i] += place * step;
            step *= second[d];
        }
    }
    return indices;
}

template <std::floating_point T>
void forward(const operations::Multiply&, const OperationCall<T>& call) {
    const std::vector<std::size_t> other = broadcast_indices(call.shapes[0], call.shapes[1]);
    const std::size_t factors = element_count(call.shapes[1]);
    for (std::size_t i = 0; i < call.output.size(); ++i) {
        const std::size_t n = i / other.size();
        call.output[i] = call.inputs[0][i] * call.inputs[1][n * factors + other[i % other.size()]];
    }
}

template <std::floating_point T>
void backward(const operations::Multiply&, const OperationCall<T>& call) {
    const std::vector<std::size_t> other = broadcast_indices(call.shapes[0], call.shapes[1]);
    const std::size_t factors = element_count(call.shapes[1]);
    for (std::size_t i = 0; i < call.output.size(); ++i) {
        const std::size_t factor = i / other.size() * factors + other[i % other.size()];
        const T gradient = call.output_gradient[i];
        if (call.input_gradients[0] != nullptr)
            call.input_gradients[0][i] += gradient * call.inputs[1][factor];
        if (call.input_gradients[1] != nullptr)
            call.input_gradients[1][factor] += gradient * call.inputs[0][i];
    }
}

/// Calls window(output, first, visit) for each window of a pool, where visit(fn) calls fn(input) for its
/// elements that are not in the padding.
template <class Window>
void for_each_window(const operations::Pool2d& pool, std::size_t batch, const Shape& in, Window&& window) {
    const Shape out = pool.output_shape({&in, 1});
    std::size_t output = 0;
    for (std::size_t plane = 0; plane < batch * in[0]; ++plane) {
        for (std::size_t y = 0; y < out[1]; ++y) {
            for (std::size_t x = 0; x < out[2]; ++x, ++output) {
                window(output, [&](auto&& visit) {
                    for (std::size_t ky = 0; ky < pool.kernel_size.height; ++ky) {
                        const std::size_t iy = y * pool.stride.height + ky - pool.padding.height;
                        for (std::size_t kx = 0; iy < in[1] && kx < pool.kernel_size.width; ++kx) {
                            const std::size_t ix = x * pool.stride.width + kx - pool.padding.width;
                            if (ix < in[2]) visit((plane * in[1] + iy) * in[2] + ix);
                        }
                    }
                });
            }
        }
    }
}

template <std::floating_point T>
void forward(const operations::Pool2d& pool, const OperationCall<T>& call) {
    const bool is_max = pool.kind == operations::Pool2d::Kind::max;
    const auto count = static_cast<T>(pool.kernel_size.height * pool.kernel_size.width);
    if (is_max) call.memory.places.resize(call.output.size());
    for_each_window(pool, call.batch, call.shapes[0], [&](std::size_t output, auto&& for_each_input) {
        T sum = 0;
        const T* best = nullptr;
        for_each_input([&](std::size_t input) {
            const T* const value = call.inputs[0] + input;
            sum += *value;
            if (best == nullptr || *value > *best || std::isnan(*value)) best = value;
        });
        call.output[output] = is_max ? *best : sum / count;
        if (is_max) call.memory.places[output] = static_cast<std::size_t>(best - call.inputs[0]);
    });
}

template <std::floating_point T>
void backward(const operations::Pool2d& pool, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    if (pool.kind == operations::Pool2d::Kind::max) {
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.input_gradients[0][call.memory.places[i]] += call.output_gradient[i];
        return;
    }
    const auto count = static_cast<T>(pool.kernel_size.height * pool.kernel_size.width);
    for_each_window(pool, call.batch, call.shapes[0], [&](std::size_t output, auto&& for_each_input) {
        for_each_input([&](std::size_t input) {
            call.input_gradients[0][input] += call.output_gradient[output] / count;
        });
    });
}

template <std::floating_point T>
void forward(const operations::GlobalAvgPool2d&, const OperationCall<T>& call) {
    const std::size_t plane = call.shapes[0][1] * call.shapes[0][2];
    for (std::size_t i = 0; i < call.output.size(); ++i) {
        T sum = 0;
        for (std::size_t p = 0; p < plane; ++p) sum += call.inputs[0][i * plane + p];
        call.output[i] = sum / static_cast<T>(plane);
    }
}

template <std::floating_point T>
void backward(const operations::GlobalAvgPool2d&, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    const std::size_t plane = call.shapes[0][1] * call.shapes[0][2];
    for (std::size_t i = 0; i < call.output.size() * plane; ++i)
        call.input_gradients[0][i] += call.output_gradient[i / plane] / static_cast<T>(plane);
}

template <std::floating_point T>
void forward(const operations::Flatten&, const OperationCall<T>& call) {
    std::copy_n(call.inputs[0], call.output.size(), call.output.data());
}

template <std::floating_point T>
void backward(const operations::Flatten&, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.input_gradients[0][i] += call.output_gradient[i];
}

/// Returns the factor of each element in a dropout: 0, or 1 / (1 - p). It depends on the seed, the step, the
/// operation and the element's place in the batch alone.
template <std::floating_point T>
[[nodiscard]] T dropout_factor(const operations::Dropout& dropout, const OperationCall<T>& call,
                               std::size_t element) {
    if (call.mode == Mode::evaluate) return 1;
    SampleRandom random(call.seed + call.node, call.step, element);
    return random.unit() < dropout.p ? T{0} : static_cast<T>(1 / (1 - dropout.p));
}

template <std::floating_point T>
void forward(const operations::Dropout& dropout, const OperationCall<T>& call) {
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.output[i] = call.inputs[0][i] * dropout_factor(dropout, call, i);
}

template <std::floating_point T>
void backward(const operations::Dropout& dropout, const OperationCall<T>& call) {
    if (call.input_gradients[0] == nullptr) return;
    for (std::size_t i = 0; i < call.output.size(); ++i)
        call.input_gradients[0][i] += call.output_gradient[i] * dropout_factor(dropout, call, i);
}

}  // namespace DPTK_NAMESPACE::nn::reference
