/// The forced end of NCCL communicators.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "dptk/comm/nccl/may_hang_call.hpp"
#include "dptk/comm/nccl/types.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

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
    void free_unused();

    /// For who ends it; when nobody is inside NCCL. Null where somebody has ended it before.
    [[nodiscard]] ncclComm_t take();
};

/// Aborts communicators that were connected together: once, one after the other, since NCCL keeps what such
/// communicators share without a lock, and on a thread of its own, since it may hang.
class NcclAbort {
  public:
    explicit NcclAbort(std::vector<std::shared_ptr<NcclHandle>> handles);

    /// Does not wait.
    void start() noexcept;

    /// Blocks until all are aborted, for at most some seconds. At once where nobody has started it.
    void wait() noexcept;

    /// Whether all are aborted, or nobody can do anything about it. Does not block.
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
