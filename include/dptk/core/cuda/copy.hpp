/// Copies between host and device memory, ordered in a CUDA stream. Each function says whether it blocks
/// the host.
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

/// Copies the elements of a contiguous range of host memory to device memory. If the host memory is
/// page-locked, the call does not block, and the range must stay unchanged until the stream has copied it.
/// Other memory may be changed as soon as the call returns. Throws ArgumentError if the sizes differ.
template <std::ranges::contiguous_range From, Element T>
void copy_to_device(const From& from, DeviceSpan<T> to, StreamRef stream = {}) {
    static_assert(std::same_as<std::ranges::range_value_t<From>, T>,
                  "expected source and destination of the same element type");
    detail::check_sizes("copy_to_device", std::ranges::size(from), to.size());
    detail::copy_bytes(to.data(), std::ranges::data(from), to.size() * sizeof(T), stream);
}

/// Copies device memory to a contiguous range of host memory. If the host memory is page-locked, the call
/// does not block, and the elements are valid once the stream has finished the copy; otherwise the call
/// blocks until they are copied. Throws ArgumentError if the sizes differ.
template <Element T, std::ranges::contiguous_range To>
void copy_to_host(DeviceSpan<T> from, To&& to, StreamRef stream = {}) {
    static_assert(std::same_as<std::ranges::range_value_t<To>, std::remove_const_t<T>>,
                  "expected source and destination of the same element type");
    detail::check_sizes("copy_to_host", from.size(), std::ranges::size(to));
    detail::copy_bytes(std::ranges::data(to), from.data(), from.size() * sizeof(T), stream);
}

/// Copies from device memory to device memory, on one device or between two. Does not block. Throws
/// ArgumentError if the sizes differ.
template <Element T, Element U>
void copy_on_device(DeviceSpan<T> from, DeviceSpan<U> to, StreamRef stream = {}) {
    static_assert(std::same_as<std::remove_const_t<T>, U>,
                  "expected source and destination of the same element type");
    detail::check_sizes("copy_on_device", from.size(), to.size());
    detail::copy_bytes(to.data(), from.data(), to.size() * sizeof(U), stream);
}

/// Copies a contiguous range of host memory into a new buffer on the current device. Blocks until the copy
/// is done.
template <std::ranges::contiguous_range From>
[[nodiscard]] auto to_device(const From& from, StreamRef stream = {}) {
    DeviceBuffer<std::ranges::range_value_t<From>> buffer(std::ranges::size(from));
    copy_to_device(from, buffer.span(), stream);
    synchronize(stream);
    return buffer;
}

/// Copies device memory into a new std::vector on the host. Blocks until the copy is done.
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
