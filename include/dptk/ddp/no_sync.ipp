#pragma once

#include "dptk/ddp/no_sync.hpp"

#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE NoSync::NoSync(detail::GradientReducer& reducer) : reducer_(reducer) {
    reducer_.enter_local_scope();
}

DPTK_INLINE NoSync::~NoSync() {
    reducer_.leave_local_scope();
}

}  // namespace DPTK_NAMESPACE
