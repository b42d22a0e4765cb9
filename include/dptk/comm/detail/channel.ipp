#pragma once

#include "dptk/comm/detail/channel.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool Channel::takes_device_memory(const Collective& call) const {
    static_cast<void>(call);
    return false;
}

DPTK_INLINE bool Channel::is_connected_for(const DeviceCall& call) const {
    static_cast<void>(call);
    return true;
}

DPTK_INLINE void Channel::run_on_devices(const DeviceCall& call) {
    static_cast<void>(call);
    throw ArgumentError(
        "this group does not support calls on several devices per process: use a ProcessGroup over MPI, Gloo "
        "or threads");
}

DPTK_INLINE std::vector<void*> Channel::peer_memory(const Buffer& memory) const {
    static_cast<void>(memory);
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
