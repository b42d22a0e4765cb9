#pragma once

#include "dptk/comm/stream_transport.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void StreamTransport::run(const Collective& call) {
    Work(enqueue(call)).wait();
}

}  // namespace DPTK_NAMESPACE
