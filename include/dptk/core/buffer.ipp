#pragma once

#include "dptk/core/buffer.hpp"

#include "dptk/core/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string device_name(Device device) {
    return device.type == DeviceType::cpu ? std::string("cpu") : detail::text("cuda:", device.index);
}

DPTK_INLINE std::size_t Buffer::element_size() const noexcept {
    return dtype == DType::opaque ? opaque_size : dtype_size(dtype);
}

DPTK_INLINE Buffer Buffer::slice(std::size_t first, std::size_t length) const noexcept {
    return {static_cast<std::byte*>(data) + first * element_size(), length, dtype, device, opaque_size};
}

}  // namespace DPTK_NAMESPACE
