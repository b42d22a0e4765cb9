/// The erased view of elements in memory that a transport gets to see. Typed code uses spans and contiguous
/// ranges; a Buffer exists only at the transport's boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dptk/core/dtype.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// Where memory lies. Memory that the host itself reads and writes is the cpu's, page-locked or not.
enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
    DeviceType type = DeviceType::cpu;
    /// As this process counts its devices.
    int index = 0;

    friend bool operator==(const Device&, const Device&) = default;
};

/// The name of a device as messages show it: "cpu", "cuda:1".
[[nodiscard]] inline std::string device_name(Device device) {
    return device.type == DeviceType::cpu ? std::string("cpu") : detail::text("cuda:", device.index);
}

/// `count` elements of `dtype` from `data` on, on `device`. Points, and owns nothing.
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::u8;
    Device device = {};
    /// Bytes of one element, where dtype is opaque.
    std::size_t opaque_size = 0;

    [[nodiscard]] std::size_t element_size() const noexcept {
        return dtype == DType::opaque ? opaque_size : dtype_size(dtype);
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return count * element_size(); }

    [[nodiscard]] bool on_device() const noexcept { return device.type != DeviceType::cpu; }

    /// `length` elements from element `first` on.
    [[nodiscard]] Buffer slice(std::size_t first, std::size_t length) const noexcept {
        return {static_cast<std::byte*>(data) + first * element_size(), length, dtype, device, opaque_size};
    }

    /// As many elements of the same type, elsewhere.
    [[nodiscard]] Buffer at(void* other) const noexcept { return {other, count, dtype, device, opaque_size}; }
};

}  // namespace dptk
