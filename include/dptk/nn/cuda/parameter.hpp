/// A parameter in device memory, in the layout that cuDNN and cuBLASLt need, with its gradient in the same
/// layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/float16.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// The memory layout of a weight: PyTorch's [outputs, channels, positions] as [padded outputs, positions,
/// padded channels]. A position is an element of the kernel's square in a convolution, and a pixel of the
/// input in a linear layer. The padding is zero, and stays zero.
struct WeightLayout {
    std::size_t outputs = 0;
    std::size_t padded_outputs = 0;
    std::size_t channels = 1;
    std::size_t padded_channels = 1;
    std::size_t positions = 1;

    [[nodiscard]] std::size_t count() const noexcept { return padded_outputs * positions * padded_channels; }

    [[nodiscard]] bool is_row_major() const noexcept;

    /// Returns 0 if the layout is row-major, otherwise a hash that is equal for equal layouts.
    [[nodiscard]] std::uint64_t hash() const;

    /// Calls fn(index in this layout, index in PyTorch's row-major layout) for each element, without padding.
    template <class Fn>
    void for_each(Fn&& fn) const {
        for (std::size_t output = 0; output < outputs; ++output)
            for (std::size_t channel = 0; channel < channels; ++channel)
                for (std::size_t position = 0; position < positions; ++position)
                    fn((output * positions + position) * padded_channels + channel,
                       (output * channels + channel) * positions + position);
    }
};

class Parameter {
  public:
    /// `initial` has the first values, row-major.
    Parameter(Context& context, Shape shape, const WeightLayout& layout, std::span<const float> initial);

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] std::size_t count() const noexcept { return layout_.count(); }
    [[nodiscard]] std::uint64_t layout() const { return layout_.hash(); }
    [[nodiscard]] DeviceSpan<float> values() const noexcept { return values_; }
    [[nodiscard]] DeviceSpan<float> gradient() const noexcept { return gradient_; }

    /// Moves the values to `storage`, which must outlive this parameter or the next call. Throws
    /// ArgumentError if `storage` is not aligned to 16 bytes.
    void set_value_storage(DeviceSpan<float> storage);

    /// Zeroes `storage` and uses it for the gradient from now on. `storage` must outlive this parameter or
    /// the next call. Throws ArgumentError if `storage` is not aligned to 16 bytes.
    void set_gradient_storage(DeviceSpan<float> storage);

    /// Blocks.
    void from_row_major(std::span<const float> values, DeviceSpan<float> out) const;

    /// Blocks.
    void to_row_major(DeviceSpan<float> elements, std::span<float> out) const;

    void zero_gradient();

    /// Does nothing: the layout depends only on the shapes and the precision, not on the GPU.
    void make_row_major() const noexcept {}

    /// Returns the values in the type of activations: the f32 values themselves, or their bf16 copy.
    [[nodiscard]] const void* operand() const noexcept;

    /// Returns the bf16 copy of the values; null if activations are f32.
    [[nodiscard]] void* copy() noexcept { return copy_.data(); }

  private:
    [[nodiscard]] StreamRef stream() const noexcept { return context_.stream(); }

    void check_aligned(DeviceSpan<float> storage) const;

    Context& context_;
    Shape shape_;
    WeightLayout layout_;
    DeviceBuffer<float> own_values_;
    DeviceBuffer<float> own_gradient_;
    DeviceSpan<float> values_;
    DeviceSpan<float> gradient_;
    DeviceBuffer<bfloat16> copy_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/parameter.ipp"
#endif
