/// A view of elements in a device's memory. It is no range: the host cannot read what it points to.
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

/// `size()` elements from `data()` on, in the memory of `device()`; std::span's counterpart for verbs.
template <Element T>
class DeviceSpan {
  public:
    /// No elements.
    DeviceSpan() = default;

    /// `size` elements from `data` on, in the memory of `device`.
    DeviceSpan(T* data, std::size_t size, Device device) noexcept
        : data_(data), size_(size), device_(device) {}

    /// A view for reading, of elements that may be written.
    template <class U>
        requires std::same_as<const U, T> && (!std::same_as<U, T>)
    DeviceSpan(const DeviceSpan<U>& other) noexcept  // NOLINT(google-explicit-constructor): a widening
        : DeviceSpan(other.data(), other.size(), other.device()) {}

    /// The address of the first element, for kernels and copies: the host cannot read it.
    [[nodiscard]] T* data() const noexcept { return data_; }
    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// The device in whose memory they lie.
    [[nodiscard]] Device device() const noexcept { return device_; }

    /// `count` elements from element `first` on. Throws ArgumentError where there are not so many.
    [[nodiscard]] DeviceSpan subspan(std::size_t first, std::size_t count) const {
        if (first > size_ || count > size_ - first) {
            throw ArgumentError(detail::text("elements ", first, " to ", first + count, " of ", size_));
        }
        return {data_ + first, count, device_};
    }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    Device device_ = {DeviceType::cuda, 0};
};

/// Elements in a device's memory: DeviceSpan<float>, cuda::DeviceBuffer<float>, or a class of the user's with
/// data(), size() and device().
template <class R>
concept DeviceRange = !std::ranges::range<R> && requires(R& range) {
    requires Element<std::remove_pointer_t<decltype(range.data())>>;
    { range.size() } -> std::convertible_to<std::size_t>;
    { range.device() } -> std::same_as<Device>;
};

}  // namespace DPTK_NAMESPACE
