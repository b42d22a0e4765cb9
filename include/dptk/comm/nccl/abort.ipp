#pragma once

#include "dptk/comm/nccl/abort.hpp"

#include <exception>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void NcclHandle::free_unused() {
    const std::lock_guard lock(mutex);
    registered.clear();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    for (void* memory : std::exchange(unused, {})) static_cast<void>(ncclMemFree(memory));
#endif
}

DPTK_INLINE ncclComm_t NcclHandle::take() {
    const std::lock_guard lock(mutex);
    ended = true;
    return std::exchange(comm, nullptr);
}

DPTK_INLINE NcclAbort::NcclAbort(std::vector<std::shared_ptr<NcclHandle>> handles)
    : handles_(std::move(handles)) {}

DPTK_INLINE void NcclAbort::start() noexcept {
    try {
        const std::lock_guard lock(mutex_);
        if (call_) return;
        std::vector<int> devices;
        for (const auto& handle : handles_) devices.push_back(handle->device);
        call_ = MayHangCall::start(text("rank ", handles_[0]->job_rank, ": ncclCommAbort"),
                                   std::move(devices), MayHangCall::short_limit, [handles = handles_] {
                                       for (const auto& handle : handles) abort(*handle);
                                   });
    } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        given_up_ = true;
        log(LogLevel::error, handles_[0]->job_rank,
            text("an NCCL communicator cannot be aborted: ", error.what()));
    }
}

DPTK_INLINE void NcclAbort::wait() noexcept {
    std::shared_ptr<MayHangCall> call;
    {
        const std::lock_guard lock(mutex_);
        call = call_;
    }
    if (call) static_cast<void>(call->wait());
}

DPTK_INLINE bool NcclAbort::is_over() {
    const std::lock_guard lock(mutex_);
    return given_up_ || (call_ && call_->is_over());
}

DPTK_INLINE void NcclAbort::abort(NcclHandle& handle) {
    ncclComm_t comm = handle.take();
    if (comm == nullptr) return;
    static_cast<void>(cudaSetDevice(handle.device));
    const ncclResult_t result = ncclCommAbort(comm);
    if (result != ncclSuccess && result != ncclInProgress)
        log(LogLevel::warning, handle.job_rank, text("ncclCommAbort: ", ncclGetErrorString(result)));
    handle.free_unused();
}

}  // namespace DPTK_NAMESPACE::detail
