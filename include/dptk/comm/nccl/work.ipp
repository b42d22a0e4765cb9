#pragma once

#include "dptk/comm/nccl/work.hpp"

#include <utility>

#include "dptk/comm/detail/backoff.hpp"
#include "dptk/control/process/awake_clock.hpp"
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
    using Clock = AwakeClock;
    const bool for_ever = timeout == std::chrono::nanoseconds::max();
    const Clock::time_point deadline = Clock::now() + (for_ever ? std::chrono::hours(1) : timeout);
    Backoff pause;
    while (!poll()) {
        if (!for_ever && Clock::now() >= deadline) return false;
        pause();
    }
    return true;
}

DPTK_INLINE void NcclWork::order_before(StreamRef stream) {
    const cuda::DeviceScope on(comm_->device());  // `stream` may be this device's default stream
    if (!poll()) end_.order_before(stream);
}

DPTK_INLINE std::exception_ptr NcclWork::error() {
    const std::lock_guard lock(mutex_);
    return error_.see();
}

DPTK_INLINE std::exception_ptr NcclWork::unreported_error() {
    const std::lock_guard lock(mutex_);
    return error_.unseen();
}

DPTK_INLINE bool NcclWork::poll() {
    const std::lock_guard lock(mutex_);
    if (ended_) return true;
    const bool has_ended = end_reached();
    if (comm_->failed()) {
        if (!comm_->is_over()) return false;  // the memory is in use until the abort is done
        error_.set(comm_->failure());
        return ended_ = true;
    }
    return ended_ = has_ended;
}

DPTK_INLINE bool NcclWork::end_reached() {
    try {
        const cuda::DeviceScope on(comm_->device());  // this thread may not have a current device yet
        return end_.ready();
    } catch (const std::exception& error) {
        comm_->set_failure(std::current_exception());
        comm_->job_state()->fail(text("rank ", comm_->job_rank(), ": ", error.what()));
        return false;
    }
}

}  // namespace DPTK_NAMESPACE::detail
