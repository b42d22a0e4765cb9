#pragma once

#include "dptk/comm/nccl/group.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NcclGroup::~NcclGroup() {
    if (begun_ == ncclSuccess) static_cast<void>(ncclGroupEnd());
}

DPTK_INLINE void NcclGroup::add(ncclResult_t result) noexcept {
    if (result == ncclInProgress) in_progress_ = true;
    if (result != ncclSuccess && result != ncclInProgress && first_ == ncclSuccess) first_ = result;
}

DPTK_INLINE ncclResult_t NcclGroup::end() noexcept {
    if (begun_ != ncclSuccess) return begun_;
    begun_ = ncclInProgress;  // the destructor must not end the group again
    const ncclResult_t result = ncclGroupEnd();
    if (first_ != ncclSuccess) return first_;
    return result == ncclSuccess && in_progress_ ? ncclInProgress : result;
}

}  // namespace DPTK_NAMESPACE::detail
