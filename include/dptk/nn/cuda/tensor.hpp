/// DeviceTensor: a dense row-major array in a device's memory, nn::Tensor's counterpart.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/nn/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// Memory on the device that is current when it grows; it never shrinks. The last dimension is contiguous.
/// Owns, moves, and is not copied.
template <class T>
class DeviceTensor {
  public:
    /// No dimensions and no elements.
    DeviceTensor() = default;

    /// Not initialised.
    explicit DeviceTensor(const Shape& shape) { resize(shape); }

    /// Takes the shape `shape`. The elements are unspecified afterwards; memory is allocated only where there
    /// was never room for as many, which blocks until the device has done all that it has been given.
    void resize(std::span<const std::size_t> shape) {
        shape_.assign(shape.begin(), shape.end());
        make_room();
    }

    /// The same for the shape [n, ...sample].
    void resize(std::size_t n, std::span<const std::size_t> sample) {
        shape_.assign(1, n);
        shape_.insert(shape_.end(), sample.begin(), sample.end());
        make_room();
    }

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    [[nodiscard]] T* data() noexcept { return memory_.data(); }
    [[nodiscard]] const T* data() const noexcept { return memory_.data(); }

    [[nodiscard]] Device device() const noexcept { return memory_.device(); }

    [[nodiscard]] DeviceSpan<T> values() noexcept { return {data(), size_, device()}; }
    [[nodiscard]] DeviceSpan<const T> values() const noexcept { return {data(), size_, device()}; }

  private:
    void make_room() {
        size_ = 0;  // should one of these throw
        const std::size_t count = element_count(shape_);
        if (count > memory_.size()) memory_ = dptk::cuda::DeviceBuffer<T>(count);
        size_ = count;
    }

    std::size_t size_ = 0;
    dptk::cuda::DeviceBuffer<T> memory_;
    Shape shape_;
};

}  // namespace DPTK_NAMESPACE::nn
