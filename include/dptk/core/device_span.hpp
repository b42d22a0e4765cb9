/// DeviceSpan, a view of elements in device memory. It is not a range, since the host cannot read its
/// elements.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <type_traits>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// A view of `size()` elements that start at `data()` in the memory of `device()`; the counterpart of
/// std::span for collectives on device memory.
template <Element T>
class DeviceSpan {
  public:
    /// Makes an empty view.
    DeviceSpan() = default;

    /// Makes a view of `size` elements that start at `data` in the memory of `device`.
    DeviceSpan(T* data, std::size_t size, Device device) noexcept
        : data_(data), size_(size), device_(device) {}

    /// Converts a view of mutable elements to a read-only view.
    template <class U>
        requires std::same_as<const U, T> && (!std::same_as<U, T>)
    DeviceSpan(const DeviceSpan<U>& other) noexcept  // NOLINT(google-explicit-constructor): a widening
        : DeviceSpan(other.data(), other.size(), other.device()) {}

    /// Returns the address of the first element, for kernels and copies: the host cannot read the elements.
    [[nodiscard]] T* data() const noexcept { return data_; }
    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Returns the device in whose memory the elements lie.
    [[nodiscard]] Device device() const noexcept { return device_; }

    /// Returns a view of `count` elements that starts at element `first`. Throws ArgumentError if this view
    /// has fewer than `first + count` elements.
    [[nodiscard]] DeviceSpan subspan(std::size_t first, std::size_t count) const {
        if (first > size_ || count > size_ - first) {
            throw ArgumentError(detail::text("subspan: elements [", first, ", ", first + count,
                                             ") are out of range: the span has ", size_, " elements"));
        }
        return {data_ + first, count, device_};
    }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    Device device_ = {DeviceType::cuda, 0};
};

/// Elements in device memory: DeviceSpan<float>, cuda::DeviceBuffer<float>, or a user's class with data(),
/// size() and device().
template <class R>
concept DeviceRange = !std::ranges::range<R> && requires(R& range) {
    requires Element<std::remove_pointer_t<decltype(range.data())>>;
    { range.size() } -> std::convertible_to<std::size_t>;
    { range.device() } -> std::same_as<Device>;
};

}  // namespace DPTK_NAMESPACE
