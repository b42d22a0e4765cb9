/// Copies between host and device memory. They take their place in a stream; whether the host waits for them
/// stands at each.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <type_traits>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

namespace detail {

void copy_bytes(void* to, const void* from, std::size_t bytes, StreamRef stream);

void check_sizes(const char* function, std::size_t from, std::size_t to);

}  // namespace detail

/// Copies the elements of a contiguous range of host memory. The host goes on at once where that is
/// page-locked; it must stay as it is until the stream has done so. Other memory may be changed when the call
/// returns.
template <std::ranges::contiguous_range From, Element T>
void copy_to_device(const From& from, DeviceSpan<T> to, StreamRef stream = {}) {
    static_assert(std::same_as<std::ranges::range_value_t<From>, T>, "elements of two types");
    detail::check_sizes("copy_to_device", std::ranges::size(from), to.size());
    detail::copy_bytes(to.data(), std::ranges::data(from), to.size() * sizeof(T), stream);
}

/// Copies to a contiguous range of host memory. Where that is page-locked the host goes on at once, and finds
/// the elements when the stream has come there; otherwise the call blocks until they are there.
template <Element T, std::ranges::contiguous_range To>
void copy_to_host(DeviceSpan<T> from, To&& to, StreamRef stream = {}) {
    static_assert(std::same_as<std::ranges::range_value_t<To>, std::remove_const_t<T>>,
                  "elements of two types");
    detail::check_sizes("copy_to_host", from.size(), std::ranges::size(to));
    detail::copy_bytes(std::ranges::data(to), from.data(), from.size() * sizeof(T), stream);
}

/// Copies from device memory to device memory, of one device or of two. Does not block.
template <Element T, Element U>
void copy_on_device(DeviceSpan<T> from, DeviceSpan<U> to, StreamRef stream = {}) {
    static_assert(std::same_as<std::remove_const_t<T>, U>, "elements of two types");
    detail::check_sizes("copy_on_device", from.size(), to.size());
    detail::copy_bytes(to.data(), from.data(), to.size() * sizeof(U), stream);
}

/// The elements of a contiguous range on the current device. Blocks until they are there.
template <std::ranges::contiguous_range From>
[[nodiscard]] auto to_device(const From& from, StreamRef stream = {}) {
    DeviceBuffer<std::ranges::range_value_t<From>> buffer(std::ranges::size(from));
    copy_to_device(from, buffer.span(), stream);
    synchronize(stream);
    return buffer;
}

/// The elements on the host. Blocks until they are there.
template <Element T>
[[nodiscard]] auto to_host(DeviceSpan<T> from, StreamRef stream = {}) {
    std::vector<std::remove_const_t<T>> elements(from.size());
    copy_to_host(from, elements, stream);
    synchronize(stream);
    return elements;
}

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/copy.ipp"
#endif
