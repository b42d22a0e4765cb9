/// The erased view of elements in memory that a transport gets to see. Typed code uses spans and contiguous
/// ranges; a Buffer exists only at the transport's boundary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dptk/core/dtype.hpp"

namespace dptk {

/// Where memory lies.
enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
    DeviceType type = DeviceType::cpu;
    int index = 0;

    friend bool operator==(const Device&, const Device&) = default;
};

/// `count` elements of `dtype` from `data` on, on `device`. Points, and owns nothing.
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::u8;
    Device device = {};

    [[nodiscard]] std::size_t bytes() const noexcept { return count * dtype_size(dtype); }

    /// `length` elements from element `first` on.
    [[nodiscard]] Buffer slice(std::size_t first, std::size_t length) const noexcept {
        return {static_cast<std::byte*>(data) + first * dtype_size(dtype), length, dtype, device};
    }
};

}  // namespace dptk
