/// Memory that a communicator has allocated: an array of elements that its transport reaches without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "dptk/core/dtype.hpp"

namespace dptk {

/// Owns `size()` elements, zero at first and aligned to 64 bytes. A contiguous range, so that it goes into
/// every collective. Started operations keep the memory alive.
template <Element T>
class Allocation {
  public:
    Allocation() = default;

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
    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), count_}; }

  private:
    std::shared_ptr<void> memory_;
    std::size_t count_ = 0;
};

}  // namespace dptk
