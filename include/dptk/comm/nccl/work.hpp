/// NCCL calls that are enqueued on a CUDA stream, as background work.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>

#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/nccl/comm.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/watchdog.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/event.hpp"

namespace DPTK_NAMESPACE::detail {

/// The work of a call that was captured into a CUDA graph. wait() returns at once, since the call does not
/// run before the graph is launched.
class CapturedWork final : public WorkState {
  public:
    bool wait(std::chrono::nanoseconds) override { return true; }
    void order_before(StreamRef) override {}
    std::exception_ptr error() override { return nullptr; }
    std::exception_ptr unreported_error() override { return nullptr; }
};

/// Watchdog for NCCL calls in CUDA graphs: queries NCCL's asynchronous errors at intervals, since no work
/// object does so for these calls.
class NcclWatch final : public WatchdogTask {
  public:
    [[nodiscard]] static std::shared_ptr<NcclWatch> start(std::shared_ptr<NcclComm> comm);

    void look() noexcept override { static_cast<void>(comm_->failed()); }

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    explicit NcclWatch(std::shared_ptr<NcclComm> comm);

    const std::shared_ptr<NcclComm> comm_;
};

/// The work of one enqueued call. An event marks its end.
class NcclWork final : public WorkState {
  public:
    /// `end` must be recorded after the call.
    NcclWork(std::shared_ptr<NcclComm> comm, cuda::Event end);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    bool ended() override { return poll(); }

    DPTK_INLINE void order_before(StreamRef stream) override;

    DPTK_INLINE std::exception_ptr error() override;

    DPTK_INLINE std::exception_ptr unreported_error() override;

  private:
    /// Whether the call has completed or failed. Queries the communicator after the event, since the event of
    /// an aborted call completes, too.
    bool poll();

    [[nodiscard]] bool end_reached();

    const std::shared_ptr<NcclComm> comm_;
    const cuda::Event end_;
    std::mutex mutex_;
    bool ended_ = false;
    WorkError error_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/work.ipp"
#endif
