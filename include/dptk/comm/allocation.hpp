/// Owning arrays in memory that a communicator has allocated, on the host or on a device. If the transport
/// allocates the memory itself (shared-memory pages, registered memory), the transport accesses the arrays
/// without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// An owning array of `size()` elements, initially zero and aligned to 64 bytes. It is a contiguous range, so
/// that every collective accepts it. Started operations keep the memory alive.
template <Element T>
class Allocation {
  public:
    /// Creates an array without elements or memory.
    Allocation() = default;

    /// Creates an array of `count` elements in `memory`, which must be zeroed and aligned. The memory is
    /// freed with its last owner.
    Allocation(std::shared_ptr<void> memory, std::size_t count) : memory_(std::move(memory)), count_(count) {}

    Allocation(Allocation&& other) noexcept
        : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}

    Allocation& operator=(Allocation&& other) noexcept {
        memory_ = std::move(other.memory_);
        count_ = std::exchange(other.count_, 0);
        return *this;
    }

    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;
    ~Allocation() = default;

    /// Returns the address of the first element.
    [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    /// Returns an iterator to the first element.
    [[nodiscard]] T* begin() const noexcept { return data(); }
    /// Returns the end iterator.
    [[nodiscard]] T* end() const noexcept { return data() + count_; }
    /// Returns element `index`. Does not check that `index` is less than size().
    [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data()[index]; }
    /// Returns the owner of the memory. A copy of this shared_ptr keeps the elements alive after this object
    /// is destroyed.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    /// Returns a view of all elements, which is valid as long as a copy of memory() exists.
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), count_}; }

  private:
    std::shared_ptr<void> memory_;
    std::size_t count_ = 0;
};

/// Device memory and the device on which it lies.
struct DeviceMemory {
    std::shared_ptr<void> data;  ///< The first byte; owns the memory.
    Device device;               ///< The device on which the memory lies.
};

/// An owning array of `size()` elements in device memory, initially zero. Collectives accept it, but it is
/// not a range, since the host cannot read it. Started operations keep the memory alive.
template <Element T>
class DeviceAllocation {
  public:
    /// Creates an array without elements or memory.
    DeviceAllocation() = default;

    /// Creates an array of `count` elements in `memory`, which must be zeroed. The memory is freed with its
    /// last owner.
    DeviceAllocation(DeviceMemory memory, std::size_t count)
        : memory_(std::move(memory.data)), span_(static_cast<T*>(memory_.get()), count, memory.device) {}

    DeviceAllocation(DeviceAllocation&& other) noexcept
        : memory_(std::move(other.memory_)), span_(std::exchange(other.span_, {})) {}

    DeviceAllocation& operator=(DeviceAllocation&& other) noexcept {
        memory_ = std::move(other.memory_);
        span_ = std::exchange(other.span_, {});
        return *this;
    }

    DeviceAllocation(const DeviceAllocation&) = delete;
    DeviceAllocation& operator=(const DeviceAllocation&) = delete;
    ~DeviceAllocation() = default;

    /// Returns the device address of the first element, for kernels and copies. The host cannot read it.
    [[nodiscard]] T* data() const noexcept { return span_.data(); }
    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return span_.size(); }
    /// Returns the device in whose memory the elements lie.
    [[nodiscard]] Device device() const noexcept { return span_.device(); }
    /// Returns the owner of the memory. A copy of this shared_ptr keeps the elements alive after this object
    /// is destroyed.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    /// Returns a view of all elements, which is valid as long as a copy of memory() exists.
    [[nodiscard]] DeviceSpan<T> span() const noexcept { return span_; }

  private:
    std::shared_ptr<void> memory_;
    DeviceSpan<T> span_;
};

}  // namespace DPTK_NAMESPACE
