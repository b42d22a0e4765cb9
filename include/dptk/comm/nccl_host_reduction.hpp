/// Reductions that NCCL has no operation for: each rank gets the others' elements from NCCL, piece by piece,
/// and combines them on the host, in rank order. Blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/slices.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/nccl_comm.hpp"
#include "dptk/comm/nccl_memory.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"

namespace dptk::detail {

/// Page-locked memory for pieces, kept from one reduction to the next.
struct NcclHostStage {
    cuda::PinnedBuffer<std::byte> parts;
    cuda::PinnedBuffer<std::byte> result;

    void reserve(std::size_t ranks, std::size_t piece) {
        if (parts.size() < ranks * piece) parts = cuda::PinnedBuffer<std::byte>(ranks * piece);
        if (result.size() < piece) result = cuda::PinnedBuffer<std::byte>(piece);
    }
};

/// A reduction's exchange of pieces between the ranks of a communicator.
class NcclHostReduction {
  public:
    NcclHostReduction(NcclComm& comm, const StreamMemoryPool& pool, NcclHostStage& stage,
                      const Collective& call, StreamRef stream)
        : comm_(comm),
          pool_(pool),
          stage_(stage),
          call_(call),
          stream_(stream),
          like_(call.verb == Verb::reduce_scatter ? call.output : call.input),
          piece_(std::clamp<std::size_t>(pieces_bytes / ranks() / like_.element_size(), 1,
                                         std::max<std::size_t>(like_.count, 1))),
          there_(pool, ranks() * piece_ * like_.element_size(), stream) {
        stage_.reserve(ranks(), piece_ * like_.element_size());
    }

    /// work_behind(stream) gives what waits for the stream, and for what can go wrong there.
    template <class WorkBehind>
    void run(WorkBehind&& work_behind) {
        const std::vector<double> weights = exchange_weights(work_behind);
        for (std::size_t done = 0; done < like_.count; done += piece_) {
            const std::size_t count = std::min(piece_, like_.count - done);
            exchange(done, count);
            Work(work_behind(stream_)).wait();  // so that the copy cannot wait for other ranks
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

    [[nodiscard]] bool receives() const noexcept {
        return call_.verb != Verb::reduce || comm_.rank() == call_.root;
    }

    /// Elements `done` and on of all ranks come to `there_`.
    void exchange(std::size_t done, std::size_t count) {
        const std::size_t bytes = count * like_.element_size();
        comm_.launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
            for (int peer = 0; peer < comm_.size(); ++peer) {
                const std::size_t first =
                    call_.verb == Verb::reduce_scatter ? static_cast<std::size_t>(peer) * like_.count : 0;
                const void* out = call_.input.slice(first + done, count).data;
                void* in = there_.data(static_cast<std::size_t>(peer) * bytes);
                if (call_.verb != Verb::reduce || peer == call_.root)
                    group.add(ncclSend(out, bytes, ncclUint8, peer, comm, stream_.get()));
                if (receives()) group.add(ncclRecv(in, bytes, ncclUint8, peer, comm, stream_.get()));
            }
        });
    }

    /// Of all ranks, where the call has them.
    template <class WorkBehind>
    [[nodiscard]] std::vector<double> exchange_weights(WorkBehind&& work_behind) {
        if (!call_.reduction.weight) return {};
        std::vector<double> weights(ranks());
        const StreamMemory own(pool_, sizeof(double), stream_);
        const StreamMemory all(pool_, ranks() * sizeof(double), stream_);
        cuda::detail::copy_bytes(own.data(), &*call_.reduction.weight, sizeof(double), stream_);
        comm_.launch("ncclAllGather", [&](ncclComm_t comm) {
            return ncclAllGather(own.data(), all.data(), 1, ncclFloat64, comm, stream_.get());
        });
        Work(work_behind(stream_)).wait();
        cuda::detail::copy_bytes(weights.data(), all.data(), ranks() * sizeof(double), stream_);
        cuda::synchronize(stream_);
        return weights;
    }

    void combine(std::size_t count, const std::vector<double>& weights) {
        Buffer piece = like_.at(stage_.result.data());
        piece.device = {};
        piece.count = count;
        std::vector<Buffer> parts;
        for (std::size_t rank = 0; rank < ranks(); ++rank)
            parts.push_back(piece.at(stage_.parts.data() + rank * piece.bytes()));
        if (!weights.empty()) return combine_weighted(piece, parts, weights);
        std::vector<const void*> sources;
        for (const Buffer& part : parts) sources.push_back(part.data);
        reduce_together({sources, {&piece.data, 1}, count, static_cast<double>(ranks())}, piece, piece.dtype,
                        call_.reduction);
    }

    /// In the wider type, rounded once.
    static void combine_weighted(const Buffer& result, const std::vector<Buffer>& parts,
                                 const std::vector<double>& weights) {
        Buffer wide = result;
        wide.dtype = accumulation_dtype(result.dtype);
        const algorithms::Scratch sum(wide);
        const algorithms::Scratch part(wide);
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
            const Buffer& into = rank == 0 ? sum.buffer() : part.buffer();
            convert(into, parts[rank]);
            scale(into, into.data, weights[rank]);
            if (rank > 0) detail::combine(sum.buffer(), part.buffer(), ReduceOp::sum);
        }
        convert(result, sum.buffer());
    }

    NcclComm& comm_;
    const StreamMemoryPool& pool_;
    NcclHostStage& stage_;
    const Collective& call_;
    StreamRef stream_;
    Buffer like_;
    std::size_t piece_;
    StreamMemory there_;
};

}  // namespace dptk::detail
