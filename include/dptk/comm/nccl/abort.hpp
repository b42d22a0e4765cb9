/// Abort of NCCL communicators (ncclCommAbort) after a failure of the job.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "dptk/comm/nccl/may_hang_call.hpp"
#include "dptk/comm/nccl/types.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// An ncclComm_t that is shared by the threads that use it and the thread that aborts it.
struct NcclHandle {
    /// Held by the thread that is inside NCCL.
    std::mutex mutex;
    ncclComm_t comm = nullptr;
    /// Written by a thread of NCCL when the communicator has connected, or has failed to connect.
    ncclComm_t connecting = nullptr;
    /// Whether `comm` must no longer be used.
    bool ended = false;
    int device = 0;
    int job_rank = 0;
    /// Registered memory from ncclMemAlloc, and NCCL's handle for each block.
    std::map<void*, void*> registered = {};
    /// Blocks that are still registered, but no longer used by dptk.
    std::vector<void*> unused = {};

    /// Frees the unused memory. Requires that NCCL has ended the communicator.
    void free_unused();

    /// Returns the communicator, which the caller must destroy or abort, and sets `comm` to null. Blocks
    /// while another thread is inside NCCL. Returns null if another thread has already taken the
    /// communicator.
    [[nodiscard]] ncclComm_t take();
};

/// Aborts communicators that were connected together. Each communicator is aborted once. They are aborted one
/// after the other, since NCCL does not lock the state that they share, and on a separate thread, since
/// ncclCommAbort may hang.
class NcclAbort {
  public:
    explicit NcclAbort(std::vector<std::shared_ptr<NcclHandle>> handles);

    /// Starts the abort. Does not block.
    void start() noexcept;

    /// Blocks until all communicators are aborted, for at most a few seconds. Returns immediately if the
    /// abort was not started.
    void wait() noexcept;

    /// Whether all communicators are aborted, or the abort has failed or hangs. Does not block.
    [[nodiscard]] bool is_over();

  private:
    static void abort(NcclHandle& handle);

    const std::vector<std::shared_ptr<NcclHandle>> handles_;
    std::mutex mutex_;
    std::shared_ptr<MayHangCall> call_;
    bool given_up_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/abort.ipp"
#endif
