/// The erased view of elements in memory that a transport gets to see. Typed code uses spans and contiguous
/// ranges; a Buffer exists only at the transport's boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// Where memory lies. Memory that the host itself reads and writes is the cpu's, page-locked or not.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// A device as this process sees it.
struct Device {
    DeviceType type = DeviceType::cpu;  ///< The host's memory, unless said otherwise.
    /// As this process counts its devices.
    int index = 0;

    friend bool operator==(const Device&, const Device&) = default;
};

/// The name of a device as messages show it: "cpu", "cuda:1".
[[nodiscard]] std::string device_name(Device device);

/// `count` elements of `dtype` from `data` on, on `device`. Points, and owns nothing.
struct Buffer {
    void* data = nullptr;     ///< The first element.
    std::size_t count = 0;    ///< How many elements there are.
    DType dtype = DType::u8;  ///< Of each element.
    Device device = {};       ///< Where the elements lie.
    /// Bytes of one element, where dtype is opaque.
    std::size_t opaque_size = 0;

    /// Bytes of one element.
    [[nodiscard]] std::size_t element_size() const noexcept {
        return dtype == DType::opaque ? opaque_size : dtype_size(dtype);
    }

    /// Bytes of all elements.
    [[nodiscard]] std::size_t bytes() const noexcept { return count * element_size(); }

    /// Whether the host cannot read it.
    [[nodiscard]] bool on_device() const noexcept { return device.type != DeviceType::cpu; }

    /// `length` elements from element `first` on.
    [[nodiscard]] Buffer slice(std::size_t first, std::size_t length) const noexcept {
        return {static_cast<std::byte*>(data) + first * element_size(), length, dtype, device, opaque_size};
    }

    /// As many elements of the same type, elsewhere.
    [[nodiscard]] Buffer at(void* other) const noexcept { return {other, count, dtype, device, opaque_size}; }
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/buffer.ipp"
#endif
