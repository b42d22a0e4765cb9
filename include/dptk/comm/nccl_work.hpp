/// A call that has been handed to the GPU.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "dptk/comm/nccl_comm.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_error.hpp"
#include "dptk/control/watchdog.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/event.hpp"

namespace dptk::detail {

/// A call that went into a CUDA graph: it goes on when that is launched, and nobody can ask for it.
class CapturedWork final : public WorkState {
  public:
    bool wait(std::chrono::nanoseconds) override { return true; }
    void order_before(StreamRef) override {}
    std::exception_ptr error() override { return nullptr; }
    std::exception_ptr unseen_error() override { return nullptr; }
};

/// Asks NCCL now and then whether all is well, where nobody else does: while graphs have its calls.
class NcclWatch final : public Watched {
  public:
    [[nodiscard]] static std::shared_ptr<NcclWatch> start(std::shared_ptr<NcclComm> comm) {
        std::shared_ptr<NcclWatch> watch(new NcclWatch(std::move(comm)));
        Watchdog::get().watch(watch);
        return watch;
    }

    void look() noexcept override { static_cast<void>(comm_->failed()); }

    [[nodiscard]] std::chrono::milliseconds interval() const noexcept override {
        return std::chrono::milliseconds(100);
    }

  private:
    explicit NcclWatch(std::shared_ptr<NcclComm> comm) : comm_(std::move(comm)) {}

    const std::shared_ptr<NcclComm> comm_;
};

class NcclWork final : public WorkState {
  public:
    /// `end` is recorded behind the call.
    NcclWork(std::shared_ptr<NcclComm> comm, cuda::Event end)
        : comm_(std::move(comm)), end_(std::move(end)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
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

    bool ended() override { return look(); }

    void order_before(StreamRef stream) override {
        const cuda::DeviceScope on(comm_->device());  // whose default stream may be meant
        if (!look()) end_.order_before(stream);
    }

    std::exception_ptr error() override {
        const std::lock_guard lock(mutex_);
        return error_.see();
    }

    std::exception_ptr unseen_error() override {
        const std::lock_guard lock(mutex_);
        return error_.unseen();
    }

  private:
    /// Whether it has ended, well or badly. The end of a call that has been aborted looks like any other: so
    /// the communicator is asked behind it.
    bool look() {
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

    [[nodiscard]] bool has_come() {
        try {
            const cuda::DeviceScope on(comm_->device());  // perhaps on a thread that has none yet
            return end_.ready();
        } catch (const std::exception& error) {
            comm_->note(std::current_exception());
            comm_->health()->fail(text("rank ", comm_->job_rank(), ": ", error.what()));
            return false;
        }
    }

    const std::shared_ptr<NcclComm> comm_;
    const cuda::Event end_;
    std::mutex mutex_;
    bool ended_ = false;
    WorkError error_;
};

}  // namespace dptk::detail
