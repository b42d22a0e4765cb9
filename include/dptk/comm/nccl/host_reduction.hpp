/// Reductions that NCCL has no operation for: each rank gets the others' elements from NCCL, piece by piece,
/// and combines them on the host, in rank order. Blocks.
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

/// Page-locked memory for pieces, kept from one reduction to the next.
struct NcclHostStage {
    cuda::PinnedBuffer<std::byte> parts;
    cuda::PinnedBuffer<std::byte> result;

    void reserve(std::size_t ranks, std::size_t piece);
};

/// A reduction's exchange of pieces between the ranks of a communicator.
class NcclHostReduction {
  public:
    NcclHostReduction(NcclComm& comm, const StreamMemoryPool& pool, NcclHostStage& stage,
                      const Collective& call, StreamRef stream);

    /// work_after(stream) gives what waits for the stream, and for what can go wrong there.
    template <class WorkBehind>
    void run(WorkBehind&& work_after) {
        const std::vector<double> weights = exchange_weights(work_after);
        for (std::size_t done = 0; done < like_.count; done += piece_) {
            const std::size_t count = std::min(piece_, like_.count - done);
            exchange(done, count);
            Work(work_after(stream_)).wait();  // so that the copy cannot wait for other ranks
            if (!receives()) continue;
            cuda::detail::copy_bytes(stage_.parts.data(), there_.data(),
                                     ranks() * count * like_.element_size(), stream_);
            cuda::synchronize(stream_);
            combine(count, weights);
            cuda::detail::copy_bytes(call_.output.slice(done, count).data, stage_.result.data(),
                                     count * like_.element_size(), stream_);
            cuda::synchronize(stream_);
        }
    }

  private:
    /// All ranks' together.
    static constexpr std::size_t pieces_bytes = std::size_t{4} << 20;

    [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(comm_.size()); }

    [[nodiscard]] bool receives() const noexcept;

    /// Elements `done` and on of all ranks come to `there_`.
    void exchange(std::size_t done, std::size_t count);

    /// Of all ranks, where the call has them.
    template <class WorkBehind>
    [[nodiscard]] std::vector<double> exchange_weights(WorkBehind&& work_after) {
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

    /// In the wider type, rounded once.
    static void combine_weighted(const Buffer& result, const std::vector<Buffer>& parts,
                                 const std::vector<double>& weights);

    NcclComm& comm_;
    const StreamMemoryPool& pool_;
    NcclHostStage& stage_;
    const Collective& call_;
    StreamRef stream_;
    Buffer like_;
    std::size_t piece_;
    StreamMemory there_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/host_reduction.ipp"
#endif
