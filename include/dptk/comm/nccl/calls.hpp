/// Mapping of collectives and messages on device memory to NCCL calls on a CUDA stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/nccl/comm.hpp"
#include "dptk/comm/nccl/host_reduction.hpp"
#include "dptk/comm/nccl/memory.hpp"
#include "dptk/comm/nccl/types.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Issues NCCL calls on a communicator. The communicator's device must be the current device.
class NcclCalls {
  public:
    explicit NcclCalls(std::shared_ptr<NcclComm> comm);

    [[nodiscard]] const StreamMemoryPool& pool();

    /// Returns a work that completes when all operations that are on the stream now have completed.
    [[nodiscard]] std::shared_ptr<WorkState> work_after(StreamRef stream) const;

    /// Copies the elements on the stream, unless both buffers are the same.
    static void copy(const Buffer& to, const Buffer& from, StreamRef stream);

    /// Whether a call on device memory involves neither the host nor temporary memory.
    [[nodiscard]] static bool is_all_on_gpu(const Collective& call);

    /// Enqueues messages of device memory as one NCCL group, so that they run concurrently.
    void issue(std::span<const Message> messages, StreamRef stream);

    /// Enqueues a call on device memory.
    void issue(const Collective& call, StreamRef stream);

  private:
    [[nodiscard]] int rank() const noexcept { return comm_->rank(); }
    [[nodiscard]] int size() const noexcept { return comm_->size(); }
    [[nodiscard]] int device() const noexcept { return comm_->device(); }

    void issue_reduction(const Collective& call, StreamRef stream);

    /// A range of the elements of a reduction.
    struct Part {
        std::size_t first = 0;
        std::size_t count = 0;
    };

    /// Splits a weighted sum so that NCCL computes all of its elements. With a single rank, NCCL (seen in
    /// 2.28) divides the elements among blocks, one per 16 KiB but at most 32, and does not compute the
    /// remainder of this division. A multiple of 16 KiB has no remainder, nor has a part that fits one block.
    [[nodiscard]] std::vector<Part> parts_of_weighted(const NcclElements& in) const;

    void issue_reduction(const Collective& call, const Part& part, ncclDataType_t type, ncclRedOp_t op,
                         StreamRef stream);

    void issue_all_gather_uneven(const Collective& call, StreamRef stream);

    void issue_gather(const Collective& call, StreamRef stream);

    void issue_scatter(const Collective& call, StreamRef stream);

    void issue_all_to_all(const Collective& call, std::span<const std::size_t> counts,
                          std::span<const std::size_t> output_counts, StreamRef stream);

    std::shared_ptr<NcclComm> comm_;
    std::unique_ptr<const StreamMemoryPool> pool_;  // created at first use
    NcclHostStage host_stage_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/calls.ipp"
#endif
