#pragma once

#include "dptk/comm/detail/devices_on_host.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void combine_devices(const Buffer& sum, const DeviceCall& call) {
    constexpr std::size_t piece_bytes = 16384;
    const std::size_t piece = std::max<std::size_t>(piece_bytes / sum.element_size(), 1);
    const algorithms::Scratch widened(sum.slice(0, std::min(piece, sum.count)));
    for (std::size_t done = 0; done < sum.count; done += piece) {
        const std::size_t count = std::min(piece, sum.count - done);
        const Buffer total = sum.slice(done, count);
        convert(total, call.inputs[0].slice(done, count));
        for (std::size_t device = 1; device < call.devices(); ++device) {
            Buffer part = call.inputs[device].slice(done, count);
            if (part.dtype != sum.dtype) {
                convert(widened.buffer().slice(0, count), part);
                part = widened.buffer().slice(0, count);
            }
            combine(total, part, call.reduction);
        }
    }
}

}  // namespace DPTK_NAMESPACE::detail
