#pragma once

#include "dptk/nn/cuda/parameter.hpp"

#include <utility>
#include <vector>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE bool WeightLayout::is_row_major() const noexcept {
    return outputs == padded_outputs && channels == padded_channels && (channels == 1 || positions == 1);
}

DPTK_INLINE std::uint64_t WeightLayout::hash() const {
    if (is_row_major()) return 0;
    return dptk::detail::fnv1a(dptk::detail::text(outputs, " ", padded_outputs, " ", channels, " ",
                                                  padded_channels, " ", positions)) |
           1;
}

DPTK_INLINE Parameter::Parameter(Context& context, Shape shape, const WeightLayout& layout,
                                 std::span<const float> initial)
    : context_(context),
      shape_(std::move(shape)),
      layout_(layout),
      own_values_(layout.count()),
      own_gradient_(layout.count()),
      values_(own_values_.span()),
      gradient_(own_gradient_.span()) {
    if (context.type() == DType::bf16) copy_ = DeviceBuffer<bfloat16>(layout.count());
    zero_gradient();
    from_row_major(initial, values_);
}

DPTK_INLINE void Parameter::set_value_storage(DeviceSpan<float> storage) {
    check_aligned(storage);
    dptk::cuda::copy_on_device(DeviceSpan<const float>(values_), storage, stream());
    values_ = storage;
    dptk::cuda::synchronize(stream());
    own_values_ = {};
    context_.note_reallocation();
}

DPTK_INLINE void Parameter::set_gradient_storage(DeviceSpan<float> storage) {
    check_aligned(storage);
    context_.note_reallocation();
    gradient_ = storage;
    zero_gradient();
    own_gradient_ = {};
}

DPTK_INLINE void Parameter::from_row_major(std::span<const float> values, DeviceSpan<float> out) const {
    std::vector<float> placed(count());
    layout_.for_each([&](std::size_t place, std::size_t index) { placed[place] = values[index]; });
    dptk::cuda::copy_to_device(placed, out, stream());
    dptk::cuda::synchronize(stream());
}

DPTK_INLINE void Parameter::to_row_major(DeviceSpan<float> elements, std::span<float> out) const {
    const std::vector<float> placed = dptk::cuda::to_host(elements, stream());
    layout_.for_each([&](std::size_t place, std::size_t index) { out[index] = placed[place]; });
}

DPTK_INLINE void Parameter::zero_gradient() {
    dptk::cuda::check(cudaMemsetAsync(gradient_.data(), 0, count() * sizeof(float), stream().get()),
                      "cudaMemsetAsync");
}

DPTK_INLINE const void* Parameter::operand() const noexcept {
    return copy_.data() != nullptr ? static_cast<const void*>(copy_.data()) : values_.data();
}

DPTK_INLINE void Parameter::check_aligned(DeviceSpan<float> storage) const {
    if (reinterpret_cast<std::uintptr_t>(storage.data()) % 16 != 0)
        throw ArgumentError(dptk::detail::text("the storage for a parameter of shape ",
                                               dptk::detail::shape_text(shape_),
                                               " must be aligned to 16 bytes, but is not"));
}

}  // namespace DPTK_NAMESPACE::nn::cuda
