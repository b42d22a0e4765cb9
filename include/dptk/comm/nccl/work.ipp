#pragma once

#include "dptk/comm/nccl/work.hpp"

#include <utility>

#include "dptk/comm/detail/pause.hpp"
#include "dptk/core/cuda/device.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<NcclWatch> NcclWatch::start(std::shared_ptr<NcclComm> comm) {
    std::shared_ptr<NcclWatch> watch(new NcclWatch(std::move(comm)));
    Watchdog::get().watch(watch);
    return watch;
}

DPTK_INLINE std::chrono::milliseconds NcclWatch::interval() const noexcept {
    return std::chrono::milliseconds(100);
}

DPTK_INLINE NcclWatch::NcclWatch(std::shared_ptr<NcclComm> comm) : comm_(std::move(comm)) {}

DPTK_INLINE NcclWork::NcclWork(std::shared_ptr<NcclComm> comm, cuda::Event end)
    : comm_(std::move(comm)), end_(std::move(end)) {}

DPTK_INLINE bool NcclWork::wait(std::chrono::nanoseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const bool for_ever = timeout == std::chrono::nanoseconds::max();
    const Clock::time_point deadline = Clock::now() + (for_ever ? std::chrono::hours(1) : timeout);
    Pause pause;
    while (!look()) {
        if (!for_ever && Clock::now() >= deadline) return false;
        pause();
    }
    return true;
}

DPTK_INLINE void NcclWork::order_before(StreamRef stream) {
    const cuda::DeviceScope on(comm_->device());  // whose default stream may be meant
    if (!look()) end_.order_before(stream);
}

DPTK_INLINE std::exception_ptr NcclWork::error() {
    const std::lock_guard lock(mutex_);
    return error_.see();
}

DPTK_INLINE std::exception_ptr NcclWork::unseen_error() {
    const std::lock_guard lock(mutex_);
    return error_.unseen();
}

DPTK_INLINE bool NcclWork::look() {
    const std::lock_guard lock(mutex_);
    if (ended_) return true;
    const bool came = has_come();
    if (comm_->failed()) {
        if (!comm_->is_over()) return false;  // the memory is in use until then
        error_.set(comm_->failure());
        return ended_ = true;
    }
    return ended_ = came;
}

DPTK_INLINE bool NcclWork::has_come() {
    try {
        const cuda::DeviceScope on(comm_->device());  // perhaps on a thread that has none yet
        return end_.ready();
    } catch (const std::exception& error) {
        comm_->note(std::current_exception());
        comm_->job_state()->fail(text("rank ", comm_->job_rank(), ": ", error.what()));
        return false;
    }
}

}  // namespace DPTK_NAMESPACE::detail
