#pragma once

#include "dptk/core/buffer.hpp"

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string device_name(Device device) {
    return device.type == DeviceType::cpu ? std::string("cpu") : detail::text("cuda:", device.index);
}

}  // namespace DPTK_NAMESPACE
