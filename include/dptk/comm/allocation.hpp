/// Memory that a communicator has allocated, on the host or on a device: an array of elements that its
/// transport reaches without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// Owns `size()` elements, zero at first and aligned to 64 bytes. A contiguous range, so that it goes into
/// every collective. Started operations keep the memory alive.
template <Element T>
class Allocation {
  public:
    /// No elements, and no memory.
    Allocation() = default;

    /// `count` elements in that memory, which is zeroed and aligned, and ends with the last who holds it.
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

    /// The address of the first element.
    [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    /// At the first element.
    [[nodiscard]] T* begin() const noexcept { return data(); }
    /// Behind the last element.
    [[nodiscard]] T* end() const noexcept { return data() + count_; }
    /// Element `index`, which must be below size(): nothing checks it.
    [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data()[index]; }
    /// What holds the memory: a copy of it keeps the elements when this is gone.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    /// A view of all elements, valid as long as somebody holds memory().
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

/// Owns `size()` elements in the memory of a device, zero at first. No range, since the host cannot read it;
/// collectives take it all the same. Started operations keep the memory alive.
template <Element T>
class DeviceAllocation {
  public:
    /// No elements, and no memory.
    DeviceAllocation() = default;

    /// `count` elements in that memory, which is zeroed, and ends with the last who holds it.
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

    /// The address of the first element, for kernels and copies: the host cannot read it.
    [[nodiscard]] T* data() const noexcept { return span_.data(); }
    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return span_.size(); }
    /// The device in whose memory they lie.
    [[nodiscard]] Device device() const noexcept { return span_.device(); }
    /// What holds the memory: a copy of it keeps the elements when this is gone.
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    /// A view of all elements, valid as long as somebody holds memory().
    [[nodiscard]] DeviceSpan<T> span() const noexcept { return span_; }

  private:
    std::shared_ptr<void> memory_;
    DeviceSpan<T> span_;
};

}  // namespace DPTK_NAMESPACE
