/// The forced end of NCCL communicators.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "dptk/comm/nccl_types.hpp"
#include "dptk/comm/nccl_uncertain_call.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// An ncclComm_t, as those who use it and those who end it share it.
struct NcclHandle {
    /// Held by whoever is inside NCCL.
    std::mutex mutex;
    ncclComm_t comm = nullptr;
    /// NCCL writes to it from a thread of its own, when it has connected or has given up to.
    ncclComm_t connecting = nullptr;
    /// Nobody may use `comm` any more.
    bool ended = false;
    int device = 0;
    int job_rank = 0;
    /// Memory of ncclMemAlloc's that NCCL knows, and its own handle for each.
    std::map<void*, void*> registered = {};
    /// That part of it which nobody else uses any more.
    std::vector<void*> unused = {};

    /// NCCL has ended the communicator, and knows no memory any more.
    void free_unused() {
        const std::lock_guard lock(mutex);
        registered.clear();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
        for (void* memory : std::exchange(unused, {})) static_cast<void>(ncclMemFree(memory));
#endif
    }

    /// For who ends it; when nobody is inside NCCL. Null where somebody has ended it before.
    [[nodiscard]] ncclComm_t take() {
        const std::lock_guard lock(mutex);
        ended = true;
        return std::exchange(comm, nullptr);
    }
};

/// Aborts communicators that were connected together: once, one after the other, since NCCL keeps what such
/// communicators share without a lock, and on a thread of its own, since it may hang.
class NcclAbort {
  public:
    explicit NcclAbort(std::vector<std::shared_ptr<NcclHandle>> handles) : handles_(std::move(handles)) {}

    /// Does not wait.
    void start() noexcept {
        try {
            const std::lock_guard lock(mutex_);
            if (call_) return;
            std::vector<int> devices;
            for (const auto& handle : handles_) devices.push_back(handle->device);
            call_ = UncertainCall::start(text("rank ", handles_[0]->job_rank, ": ncclCommAbort"),
                                         std::move(devices), UncertainCall::patience, [handles = handles_] {
                                             for (const auto& handle : handles) abort(*handle);
                                         });
        } catch (const std::exception& error) {
            const std::lock_guard lock(mutex_);
            given_up_ = true;
            log(LogLevel::error, handles_[0]->job_rank,
                text("an NCCL communicator cannot be aborted: ", error.what()));
        }
    }

    /// Blocks until all are aborted, for at most some seconds. At once where nobody has started it.
    void wait() noexcept {
        std::shared_ptr<UncertainCall> call;
        {
            const std::lock_guard lock(mutex_);
            call = call_;
        }
        if (call) static_cast<void>(call->wait());
    }

    /// Whether all are aborted, or nobody can do anything about it. Does not block.
    [[nodiscard]] bool is_over() {
        const std::lock_guard lock(mutex_);
        return given_up_ || (call_ && call_->is_over());
    }

  private:
    static void abort(NcclHandle& handle) {
        ncclComm_t comm = handle.take();
        if (comm == nullptr) return;
        static_cast<void>(cudaSetDevice(handle.device));
        const ncclResult_t result = ncclCommAbort(comm);
        if (result != ncclSuccess && result != ncclInProgress)
            log(LogLevel::warning, handle.job_rank, text("ncclCommAbort: ", ncclGetErrorString(result)));
        handle.free_unused();
    }

    const std::vector<std::shared_ptr<NcclHandle>> handles_;
    std::mutex mutex_;
    std::shared_ptr<UncertainCall> call_;
    bool given_up_ = false;
};

}  // namespace dptk::detail
