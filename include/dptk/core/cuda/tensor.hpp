/// DeviceTensor, a dense row-major array in device memory: the counterpart of Tensor.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

/// A row-major array; the last dimension is contiguous. Memory is allocated on the device that is current
/// when the array grows, and never shrinks. Movable, not copyable.
template <class T>
class DeviceTensor {
  public:
    /// Makes a tensor without dimensions and elements.
    DeviceTensor() = default;

    /// Makes a tensor of uninitialized elements.
    explicit DeviceTensor(const Shape& shape) { resize(shape); }

    /// Changes the shape to `shape`. The elements are unspecified afterwards. Memory is allocated only if
    /// the tensor never had room for as many elements; that blocks until the device has finished all of its
    /// work.
    void resize(std::span<const std::size_t> shape) {
        shape_.assign(shape.begin(), shape.end());
        make_room();
    }

    /// Changes the shape to [n, ...sample], like the overload above.
    void resize(std::size_t n, std::span<const std::size_t> sample) {
        shape_.assign(1, n);
        shape_.insert(shape_.end(), sample.begin(), sample.end());
        make_room();
    }

    /// Returns the size of each dimension, outermost first.
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns the address of the first element, for kernels and copies.
    [[nodiscard]] T* data() noexcept { return memory_.data(); }
    /// Returns the address of the first element, for reading.
    [[nodiscard]] const T* data() const noexcept { return memory_.data(); }

    /// Returns the device in whose memory the elements lie.
    [[nodiscard]] Device device() const noexcept { return memory_.device(); }

    /// Returns a view of all elements, in row-major order, valid until the next resize().
    [[nodiscard]] DeviceSpan<T> values() noexcept { return {data(), size_, device()}; }
    /// Returns a read-only view of all elements.
    [[nodiscard]] DeviceSpan<const T> values() const noexcept { return {data(), size_, device()}; }

  private:
    void make_room() {
        size_ = 0;  // stays 0 if a call below throws
        const std::size_t count = element_count(shape_);
        if (count > memory_.size()) memory_ = cuda::DeviceBuffer<T>(count);
        size_ = count;
    }

    std::size_t size_ = 0;
    cuda::DeviceBuffer<T> memory_;
    Shape shape_;
};

namespace nn {
using dptk::DeviceTensor;
}  // namespace nn

}  // namespace DPTK_NAMESPACE
