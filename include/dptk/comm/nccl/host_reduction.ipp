#pragma once

#include "dptk/comm/nccl/host_reduction.hpp"

#include "dptk/comm/algorithms/exchange.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void NcclHostStage::reserve(std::size_t ranks, std::size_t piece) {
    if (parts.size() < ranks * piece) parts = cuda::PinnedBuffer<std::byte>(ranks * piece);
    if (result.size() < piece) result = cuda::PinnedBuffer<std::byte>(piece);
}

DPTK_INLINE NcclHostReduction::NcclHostReduction(NcclComm& comm, const StreamMemoryPool& pool,
                                                 NcclHostStage& stage, const Collective& call,
                                                 StreamRef stream)
    : comm_(comm),
      pool_(pool),
      stage_(stage),
      call_(call),
      stream_(stream),
      like_(call.verb == Verb::reduce_scatter ? call.output : call.input),
      piece_(std::clamp<std::size_t>(pieces_bytes / ranks() / like_.element_size(), 1,
                                     std::max<std::size_t>(like_.count, 1))),
      gathered_(pool, ranks() * piece_ * like_.element_size(), stream) {
    stage_.reserve(ranks(), piece_ * like_.element_size());
}

DPTK_INLINE bool NcclHostReduction::receives() const noexcept {
    return call_.verb != Verb::reduce || comm_.rank() == call_.root;
}

DPTK_INLINE void NcclHostReduction::exchange(std::size_t done, std::size_t count) {
    const std::size_t bytes = count * like_.element_size();
    comm_.launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
        for (int peer = 0; peer < comm_.size(); ++peer) {
            const std::size_t first =
                call_.verb == Verb::reduce_scatter ? static_cast<std::size_t>(peer) * like_.count : 0;
            const void* out = call_.input.slice(first + done, count).data;
            void* in = gathered_.data(static_cast<std::size_t>(peer) * bytes);
            if (call_.verb != Verb::reduce || peer == call_.root)
                group.add(ncclSend(out, bytes, ncclUint8, peer, comm, stream_.get()));
            if (receives()) group.add(ncclRecv(in, bytes, ncclUint8, peer, comm, stream_.get()));
        }
    });
}

DPTK_INLINE void NcclHostReduction::combine(std::size_t count, const std::vector<double>& weights) {
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

DPTK_INLINE void NcclHostReduction::combine_weighted(const Buffer& result, const std::vector<Buffer>& parts,
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

}  // namespace DPTK_NAMESPACE::detail
