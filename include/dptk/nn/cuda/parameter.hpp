/// A parameter in a device's memory, in the layout that the libraries compute in, with its gradient in the
/// same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/float16.hpp"
#include "dptk/core/fnv1a.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/initialise.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cuda {

/// Where the elements of a weight lie: PyTorch's [outputs, channels, pixels] as [padded outputs, pixels,
/// padded channels]. The rest is padding, which is zero, and stays so.
struct WeightLayout {
    std::size_t outputs = 0;
    std::size_t padded_outputs = 0;
    std::size_t channels = 1;
    std::size_t padded_channels = 1;
    std::size_t pixels = 1;

    [[nodiscard]] std::size_t count() const noexcept { return padded_outputs * pixels * padded_channels; }

    [[nodiscard]] bool is_row_major() const noexcept {
        return outputs == padded_outputs && channels == padded_channels && (channels == 1 || pixels == 1);
    }

    /// 0 where it is row-major.
    [[nodiscard]] std::uint64_t hash() const {
        if (is_row_major()) return 0;
        return dptk::detail::fnv1a(dptk::detail::text(outputs, " ", padded_outputs, " ", channels, " ",
                                                      padded_channels, " ", pixels)) |
               1;
    }

    /// Calls fn(place, row-major index) for each element.
    template <class Fn>
    void for_each(Fn&& fn) const {
        for (std::size_t output = 0; output < outputs; ++output)
            for (std::size_t channel = 0; channel < channels; ++channel)
                for (std::size_t pixel = 0; pixel < pixels; ++pixel)
                    fn((output * pixels + pixel) * padded_channels + channel,
                       (output * channels + channel) * pixels + pixel);
    }
};

class Parameter {
  public:
    Parameter(Context& context, std::string_view name, Shape shape, const WeightLayout& layout,
              std::size_t fan_in, Generator& generator)
        : context_(context),
          name_(name),
          shape_(std::move(shape)),
          layout_(layout),
          own_values_(layout.count()),
          own_gradient_(layout.count()),
          values_(own_values_.span()),
          gradient_(own_gradient_.span()) {
        if (context.type() == DType::bf16) copy_ = DeviceBuffer<bfloat16>(layout.count());
        dptk::cuda::check(cudaMemsetAsync(gradient_.data(), 0, count() * sizeof(float), stream().get()),
                          "cudaMemsetAsync");
        import_values(initial_values<float>(element_count(shape_), fan_in, generator));
    }

    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    [[nodiscard]] std::string_view name() const noexcept { return name_; }
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] std::size_t count() const noexcept { return layout_.count(); }
    [[nodiscard]] std::uint64_t layout() const { return layout_.hash(); }
    [[nodiscard]] DeviceSpan<float> values() const noexcept { return values_; }
    [[nodiscard]] DeviceSpan<float> gradient() const noexcept { return gradient_; }

    /// Throws ArgumentError, as the next, for storage that is not aligned to 16 bytes.
    void set_value_storage(DeviceSpan<float> storage) {
        check_aligned(storage);
        dptk::cuda::copy_on_device(DeviceSpan<const float>(values_), storage, stream());
        values_ = storage;
        dptk::cuda::synchronize(stream());
        own_values_ = {};
        context_.note_move();
    }

    void set_gradient_storage(DeviceSpan<float> storage) {
        check_aligned(storage);
        context_.note_move();
        gradient_ = storage;
        dptk::cuda::check(cudaMemsetAsync(storage.data(), 0, count() * sizeof(float), stream().get()),
                          "cudaMemsetAsync");
        own_gradient_ = {};
    }

    /// Blocks.
    void import_values(std::span<const float> values) {
        std::vector<float> placed(count());
        layout_.for_each([&](std::size_t place, std::size_t index) { placed[place] = values[index]; });
        dptk::cuda::copy_to_device(placed, values_, stream());
        dptk::cuda::synchronize(stream());
    }

    /// Blocks.
    void export_values(std::span<float> out) const { fetch(values_, out); }
    void export_gradient(std::span<float> out) const { fetch(gradient_, out); }

    /// In the type of activations, for the libraries: the values themselves, or their copy.
    [[nodiscard]] const void* operand() const noexcept {
        return copy_.data() != nullptr ? static_cast<const void*>(copy_.data()) : values_.data();
    }

    /// Null where the values themselves are computed with.
    [[nodiscard]] void* copy() noexcept { return copy_.data(); }

  private:
    [[nodiscard]] StreamRef stream() const noexcept { return context_.stream(); }

    void check_aligned(DeviceSpan<float> storage) const {
        if (reinterpret_cast<std::uintptr_t>(storage.data()) % 16 != 0)
            throw ArgumentError(
                dptk::detail::text("the storage for a ", name_, " is not aligned to 16 bytes"));
    }

    void fetch(DeviceSpan<const float> from, std::span<float> out) const {
        const std::vector<float> placed = dptk::cuda::to_host(from, stream());
        layout_.for_each([&](std::size_t place, std::size_t index) { out[index] = placed[place]; });
    }

    Context& context_;
    std::string_view name_;
    Shape shape_;
    WeightLayout layout_;
    DeviceBuffer<float> own_values_;
    DeviceBuffer<float> own_gradient_;
    DeviceSpan<float> values_;
    DeviceSpan<float> gradient_;
    DeviceBuffer<bfloat16> copy_;
};

}  // namespace dptk::nn::cuda
