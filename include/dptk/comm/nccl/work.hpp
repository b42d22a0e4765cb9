/// A call that has been handed to the GPU.
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

/// A call that went into a CUDA graph: it goes on when that is launched, and nobody can ask for it.
class CapturedWork final : public WorkState {
  public:
    bool wait(std::chrono::nanoseconds) override { return true; }
    void order_before(StreamRef) override {}
    std::exception_ptr error() override { return nullptr; }
    std::exception_ptr unseen_error() override { return nullptr; }
};

/// Asks NCCL now and then whether all is well, where nobody else does: while graphs have its calls.
class NcclWatch final : public WatchdogTask {
  public:
    [[nodiscard]] static std::shared_ptr<NcclWatch> start(std::shared_ptr<NcclComm> comm);

    void look() noexcept override { static_cast<void>(comm_->failed()); }

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    explicit NcclWatch(std::shared_ptr<NcclComm> comm);

    const std::shared_ptr<NcclComm> comm_;
};

class NcclWork final : public WorkState {
  public:
    /// `end` is recorded behind the call.
    NcclWork(std::shared_ptr<NcclComm> comm, cuda::Event end);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    bool ended() override { return look(); }

    DPTK_INLINE void order_before(StreamRef stream) override;

    DPTK_INLINE std::exception_ptr error() override;

    DPTK_INLINE std::exception_ptr unseen_error() override;

  private:
    /// Whether it has ended, well or badly. The end of a call that has been aborted looks like any other: so
    /// the communicator is asked behind it.
    bool look();

    [[nodiscard]] bool has_come();

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
