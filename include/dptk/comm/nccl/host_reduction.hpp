/// Fallback for reductions that NCCL does not support: each rank receives the elements of all ranks through
/// NCCL, in pieces, and combines them on the host in rank order. Blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/nccl/comm.hpp"
#include "dptk/comm/nccl/memory.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"

namespace DPTK_NAMESPACE::detail {

/// Page-locked staging buffers, reused by all reductions.
struct NcclHostStage {
    cuda::PinnedBuffer<std::byte> parts;
    cuda::PinnedBuffer<std::byte> result;

    void reserve(std::size_t ranks, std::size_t piece);
};

/// One reduction through the host.
class NcclHostReduction {
  public:
    NcclHostReduction(NcclComm& comm, const StreamMemoryPool& pool, NcclHostStage& stage,
                      const Collective& call, StreamRef stream);

    /// Runs the reduction. work_after(stream) must return a work that completes with the stream's
    /// operations or with their failure.
    template <class WorkAfter>
    void run(WorkAfter&& work_after) {
        const std::vector<double> weights = exchange_weights(work_after);
        for (std::size_t done = 0; done < like_.count; done += piece_) {
            const std::size_t count = std::min(piece_, like_.count - done);
            exchange(done, count);
            Work(work_after(stream_)).wait();  // the copy below then does not wait for other ranks
            if (!receives()) continue;
            cuda::detail::copy_bytes(stage_.parts.data(), gathered_.data(),
                                     ranks() * count * like_.element_size(), stream_);
            cuda::synchronize(stream_);
            combine(count, weights);
            cuda::detail::copy_bytes(call_.output.slice(done, count).data, stage_.result.data(),
                                     count * like_.element_size(), stream_);
            cuda::synchronize(stream_);
        }
    }

  private:
    /// The size of one piece, summed over all ranks.
    static constexpr std::size_t pieces_bytes = std::size_t{4} << 20;

    [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(comm_.size()); }

    [[nodiscard]] bool receives() const noexcept;

    /// Sends this rank's elements, and receives `count` elements of each rank, starting at element `done`, in
    /// `gathered_`.
    void exchange(std::size_t done, std::size_t count);

    /// Returns the weights of all ranks; empty if the call has none.
    template <class WorkAfter>
    [[nodiscard]] std::vector<double> exchange_weights(WorkAfter&& work_after) {
        if (!call_.reduction.weight) return {};
        std::vector<double> weights(ranks());
        const StreamMemory own(pool_, sizeof(double), stream_);
        const StreamMemory all(pool_, ranks() * sizeof(double), stream_);
        cuda::detail::copy_bytes(own.data(), &*call_.reduction.weight, sizeof(double), stream_);
        comm_.launch("ncclAllGather", [&](ncclComm_t comm) {
            return ncclAllGather(own.data(), all.data(), 1, ncclFloat64, comm, stream_.get());
        });
        Work(work_after(stream_)).wait();
        cuda::detail::copy_bytes(weights.data(), all.data(), ranks() * sizeof(double), stream_);
        cuda::synchronize(stream_);
        return weights;
    }

    void combine(std::size_t count, const std::vector<double>& weights);

    /// Computes the weighted sum in the accumulation dtype, so that the sum is rounded only once.
    static void combine_weighted(const Buffer& result, const std::vector<Buffer>& parts,
                                 const std::vector<double>& weights);

    NcclComm& comm_;
    const StreamMemoryPool& pool_;
    NcclHostStage& stage_;
    const Collective& call_;
    StreamRef stream_;
    Buffer like_;
    std::size_t piece_;
    StreamMemory gathered_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/host_reduction.ipp"
#endif
