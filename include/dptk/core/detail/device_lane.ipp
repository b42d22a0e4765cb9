#pragma once

#include "dptk/core/detail/device_lane.hpp"

#include <utility>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void DeviceLane::copy(std::span<const LaneCopy> tensors, const LaneWeight& weight) {
    if (!tensors.empty()) copy(tensors, weight, tensors[0].to.dtype);
}

DPTK_INLINE OwnedBuffer allocate(DeviceLane& lane, std::size_t count, DType dtype) {
    Buffer elements{nullptr, count, dtype, lane.device()};
    std::shared_ptr<void> memory = lane.allocate(elements.bytes());
    elements.data = memory.get();
    return {elements, std::move(memory)};
}

}  // namespace DPTK_NAMESPACE::detail
