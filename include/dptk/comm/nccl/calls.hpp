/// How each collective and message on device memory becomes calls of NCCL's, in the order of a stream.
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

/// On a communicator whose device is the current one.
class NcclCalls {
  public:
    explicit NcclCalls(std::shared_ptr<NcclComm> comm);

    [[nodiscard]] const StreamMemoryPool& pool();

    /// What the stream has been given so far.
    [[nodiscard]] std::shared_ptr<WorkState> work_after(StreamRef stream) const;

    /// Where the elements are not there already.
    static void copy(const Buffer& to, const Buffer& from, StreamRef stream);

    /// Whether the host has no part in a call on device memory, and no memory is taken for it.
    [[nodiscard]] static bool is_all_on_gpu(const Collective& call);

    /// Hands messages of device memory to the GPU, which carries them out at once.
    void issue(std::span<const Message> messages, StreamRef stream);

    /// Hands a call on device memory to the GPU.
    void issue(const Collective& call, StreamRef stream);

  private:
    [[nodiscard]] int rank() const noexcept { return comm_->rank(); }
    [[nodiscard]] int size() const noexcept { return comm_->size(); }
    [[nodiscard]] int device() const noexcept { return comm_->device(); }

    void issue_reduction(const Collective& call, StreamRef stream);

    /// Of the elements of a reduction.
    struct Part {
        std::size_t first = 0;
        std::size_t count = 0;
    };

    /// NCCL (2.28, for one) carries a single rank's weighted sum out in blocks, of which there is one for
    /// each 16 KiB, rounded up, and at most 32. Each takes an equal part, rounded down, and what is left over
    /// is forgotten. Nothing is where the parts are 16 KiB each, and where there is one block.
    [[nodiscard]] std::vector<Part> parts_of_weighted(const NcclElements& in) const;

    void issue_reduction(const Collective& call, const Part& part, ncclDataType_t type, ncclRedOp_t op,
                         StreamRef stream);

    void issue_all_gather_uneven(const Collective& call, StreamRef stream);

    void issue_gather(const Collective& call, StreamRef stream);

    void issue_scatter(const Collective& call, StreamRef stream);

    void issue_all_to_all(const Collective& call, StreamRef stream);

    std::shared_ptr<NcclComm> comm_;
    std::unique_ptr<const StreamMemoryPool> pool_;  // at first use
    NcclHostStage host_stage_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/calls.ipp"
#endif
