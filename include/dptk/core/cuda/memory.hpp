/// Owned device memory (DeviceBuffer) and page-locked host memory (PinnedBuffer).
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE::cuda {

namespace detail {

template <class T>
[[nodiscard]] std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return std::max<std::size_t>(count * sizeof(T), 1);
}

}  // namespace detail

/// Owns `size()` uninitialized elements in the memory of the device that is current at construction.
template <Element T>
class DeviceBuffer {
  public:
    /// Makes an empty buffer, which has no memory.
    DeviceBuffer() = default;

    /// Allocates memory for `size` elements. Throws BackendError if the device does not have enough memory
    /// left.
    explicit DeviceBuffer(std::size_t size) : device_{DeviceType::cuda, current_device()} {
        void* memory = nullptr;
        check(cudaMalloc(&memory, detail::bytes_of<T>(size)), "cudaMalloc");
        data_ = static_cast<T*>(memory);
        size_ = size;
    }
    /// Frees the memory. Blocks until the device has finished all of its work.
    ~DeviceBuffer() {
        if (data_ != nullptr && !detail::is_stuck(device_.index)) static_cast<void>(cudaFree(data_));
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          device_(other.device_) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(device_, other.device_);
        return *this;
    }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    /// Returns the address of the first element, for kernels and copies: the host cannot read the elements.
    [[nodiscard]] T* data() noexcept { return data_; }
    /// Returns the address of the first element, for reading.
    [[nodiscard]] const T* data() const noexcept { return data_; }
    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Returns the device in whose memory the elements lie.
    [[nodiscard]] Device device() const noexcept { return device_; }
    /// Returns a view of all elements, valid as long as this object owns them.
    [[nodiscard]] DeviceSpan<T> span() noexcept { return {data_, size_, device_}; }
    /// Returns a read-only view of all elements, valid as long as this object owns them.
    [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {data_, size_, device_}; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    Device device_ = {DeviceType::cuda, 0};
};

/// Owns `size()` elements of page-locked host memory, initially zero. It is a contiguous range; every
/// device can copy from and to it asynchronously.
template <Element T>
class PinnedBuffer {
  public:
    /// Makes an empty buffer, which has no memory.
    PinnedBuffer() = default;

    /// Allocates `size` elements. Throws BackendError if that much memory cannot be page-locked.
    explicit PinnedBuffer(std::size_t size) {
        void* memory = nullptr;
        check(cudaHostAlloc(&memory, detail::bytes_of<T>(size), cudaHostAllocPortable), "cudaHostAlloc");
        data_ = static_cast<T*>(memory);
        size_ = size;
        std::uninitialized_value_construct_n(data_, size_);
    }
    ~PinnedBuffer() {
        if (data_ != nullptr && !detail::is_any_stuck()) static_cast<void>(cudaFreeHost(data_));
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    PinnedBuffer(const PinnedBuffer&) = delete;
    PinnedBuffer& operator=(const PinnedBuffer&) = delete;

    /// Returns the address of the first element, on the host.
    [[nodiscard]] T* data() noexcept { return data_; }
    /// Returns the address of the first element, for reading.
    [[nodiscard]] const T* data() const noexcept { return data_; }
    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Returns a pointer to the first element.
    [[nodiscard]] T* begin() noexcept { return data_; }
    /// Returns a pointer past the last element.
    [[nodiscard]] T* end() noexcept { return data_ + size_; }
    /// Returns a read-only pointer to the first element.
    [[nodiscard]] const T* begin() const noexcept { return data_; }
    /// Returns a read-only pointer past the last element.
    [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
    /// Returns element `index`, which must be less than size(); this is not checked.
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
    /// Returns element `index` for reading, without a check.
    [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Returns a view of `size` elements of device memory that the caller owns. Throws ArgumentError if the
/// memory is the host's.
template <Element T>
[[nodiscard]] DeviceSpan<T> device_span(T* data, std::size_t size) {
    const Device device = device_of(data);
    if (device.type == DeviceType::cpu && size != 0)
        throw ArgumentError("device_span: expected device memory, got host memory; pass a std::span instead");
    return {data, size, device};
}

}  // namespace DPTK_NAMESPACE::cuda
