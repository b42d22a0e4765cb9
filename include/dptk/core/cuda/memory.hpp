/// Owned memory: on a device, and on the host where devices can copy from and to it while both compute.
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

/// `size()` elements on one device, not initialised. Its memory is the device's that is current when it is
/// made.
template <Element T>
class DeviceBuffer {
  public:
    /// No elements, and no memory.
    DeviceBuffer() = default;

    /// Throws BackendError where the device has not so much memory left.
    explicit DeviceBuffer(std::size_t size) : device_{DeviceType::cuda, current_device()} {
        void* memory = nullptr;
        check(cudaMalloc(&memory, detail::bytes_of<T>(size)), "cudaMalloc");
        data_ = static_cast<T*>(memory);
        size_ = size;
    }
    /// Blocks until the device has done all that it has been given.
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

    /// The address of the first element, for kernels and copies: the host cannot read it.
    [[nodiscard]] T* data() noexcept { return data_; }
    /// The same, for reading.
    [[nodiscard]] const T* data() const noexcept { return data_; }
    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// The device in whose memory they lie.
    [[nodiscard]] Device device() const noexcept { return device_; }
    /// A view of all elements, valid as long as this owns them.
    [[nodiscard]] DeviceSpan<T> span() noexcept { return {data_, size_, device_}; }
    /// The same, for reading.
    [[nodiscard]] DeviceSpan<const T> span() const noexcept { return {data_, size_, device_}; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    Device device_ = {DeviceType::cuda, 0};
};

/// `size()` elements of page-locked host memory, zero at first: a contiguous range, from and to which every
/// device copies without the host's help.
template <Element T>
class PinnedBuffer {
  public:
    /// No elements, and no memory.
    PinnedBuffer() = default;

    /// Throws BackendError where so much memory cannot be locked.
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

    /// The address of the first element, on the host.
    [[nodiscard]] T* data() noexcept { return data_; }
    /// The same, for reading.
    [[nodiscard]] const T* data() const noexcept { return data_; }
    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// At the first element.
    [[nodiscard]] T* begin() noexcept { return data_; }
    /// Behind the last element.
    [[nodiscard]] T* end() noexcept { return data_ + size_; }
    /// At the first element, for reading.
    [[nodiscard]] const T* begin() const noexcept { return data_; }
    /// Behind the last element, for reading.
    [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
    /// Element `index`, which must be below size(): nothing checks it.
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
    /// The same, for reading.
    [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A view of memory that somebody else has allocated on a device. Throws ArgumentError where it is the
/// host's.
template <Element T>
[[nodiscard]] DeviceSpan<T> device_span(T* data, std::size_t size) {
    const Device device = device_of(data);
    if (device.type == DeviceType::cpu && size != 0)
        throw ArgumentError("device_span of host memory: give the verbs a std::span");
    return {data, size, device};
}

}  // namespace DPTK_NAMESPACE::cuda
