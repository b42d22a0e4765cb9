/// Memory that a communicator has allocated, on the host or on a device: an array of elements that its
/// transport reaches without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"

namespace dptk {

/// Owns `size()` elements, zero at first and aligned to 64 bytes. A contiguous range, so that it goes into
/// every collective. Started operations keep the memory alive.
template <Element T>
class Allocation {
  public:
    Allocation() = default;

    /// `count` elements in that memory, which is zeroed and aligned, and ends with the last who holds
    /// it.
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

    [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] T* begin() const noexcept { return data(); }
    [[nodiscard]] T* end() const noexcept { return data() + count_; }
    [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data()[index]; }
    /// What holds the memory.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), count_}; }

  private:
    std::shared_ptr<void> memory_;
    std::size_t count_ = 0;
};

/// Memory of a device, and which one it is.
struct DeviceMemory {
    std::shared_ptr<void> data;  ///< Its first byte; holds the memory.
    Device device;               ///< Where it is.
};

/// The same in the memory of a device: no range, since the host cannot read it.
template <Element T>
class DeviceAllocation {
  public:
    DeviceAllocation() = default;

    /// `count` elements in that memory.
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

    [[nodiscard]] T* data() const noexcept { return span_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return span_.size(); }
    [[nodiscard]] Device device() const noexcept { return span_.device(); }
    /// What holds the memory.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    [[nodiscard]] DeviceSpan<T> span() const noexcept { return span_; }

  private:
    std::shared_ptr<void> memory_;
    DeviceSpan<T> span_;
};

}  // namespace dptk
