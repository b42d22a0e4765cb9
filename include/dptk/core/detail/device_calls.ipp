#pragma once

#include "dptk/core/detail/device_calls.hpp"

#include <exception>

#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE const DeviceCalls& device_calls() {
    if (const DeviceCalls* calls = registered_device_calls()) return *calls;
    throw ArgumentError(no_device_memory);
}

DPTK_INLINE CurrentDevice::CurrentDevice(int device) : before_(device_calls().current_device()) {
    if (device != before_) device_calls().set_device(device);
}

DPTK_INLINE CurrentDevice::~CurrentDevice() {
    try {
        if (device_calls().current_device() != before_) device_calls().set_device(before_);
    } catch (const std::exception&) {
        // If the device has failed, the next CUDA call reports it.
    }
}

}  // namespace DPTK_NAMESPACE::detail
