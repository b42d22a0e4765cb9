/// Buffer, a type-erased view of elements in host or device memory, as transports see it. Typed code uses
/// spans and contiguous ranges; a Buffer exists only at the transport's boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// The kind of memory. Memory that the host itself reads and writes is `cpu`, page-locked or not.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// A device: the host, or one CUDA device of this process.
struct Device {
    DeviceType type = DeviceType::cpu;  ///< The kind of device; the host by default.
    /// The index of the device among the devices of this process.
    int index = 0;

    friend bool operator==(const Device&, const Device&) = default;
};

/// Returns the name of a device as messages show it: "cpu", "cuda:1".
[[nodiscard]] std::string device_name(Device device);

/// A view of `count` elements of `dtype` that start at `data` in the memory of `device`. Owns nothing.
struct Buffer {
    void* data = nullptr;     ///< The first element.
    std::size_t count = 0;    ///< The number of elements.
    DType dtype = DType::u8;  ///< The type of each element.
    Device device = {};       ///< The device in whose memory the elements lie.
    /// The bytes of one element if `dtype` is opaque.
    std::size_t opaque_size = 0;

    /// Returns the bytes of one element.
    [[nodiscard]] std::size_t element_size() const noexcept {
        return dtype == DType::opaque ? opaque_size : dtype_size(dtype);
    }

    /// Returns the bytes of all elements.
    [[nodiscard]] std::size_t bytes() const noexcept { return count * element_size(); }

    /// Whether the elements are in device memory, which the host cannot read.
    [[nodiscard]] bool on_device() const noexcept { return device.type != DeviceType::cpu; }

    /// Returns a view of `length` elements that starts at element `first`.
    [[nodiscard]] Buffer slice(std::size_t first, std::size_t length) const noexcept {
        return {static_cast<std::byte*>(data) + first * element_size(), length, dtype, device, opaque_size};
    }

    /// Returns a view of the same number and type of elements at another address of the same device.
    [[nodiscard]] Buffer at(void* other) const noexcept { return {other, count, dtype, device, opaque_size}; }
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/buffer.ipp"
#endif
