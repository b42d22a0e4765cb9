#pragma once

#include "dptk/comm/nccl/calls.hpp"

#include <optional>
#include <utility>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/nccl/work.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/event.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NcclCalls::NcclCalls(std::shared_ptr<NcclComm> comm) : comm_(std::move(comm)) {}

DPTK_INLINE const StreamMemoryPool& NcclCalls::pool() {
    if (!pool_) pool_ = std::make_unique<const StreamMemoryPool>(device());
    return *pool_;
}

DPTK_INLINE std::shared_ptr<WorkState> NcclCalls::work_after(StreamRef stream) const {
    return std::make_shared<NcclWork>(comm_, cuda::Event(stream));
}

DPTK_INLINE void NcclCalls::copy(const Buffer& to, const Buffer& from, StreamRef stream) {
    if (to.data != from.data) cuda::detail::copy_bytes(to.data, from.data, from.bytes(), stream);
}

DPTK_INLINE bool NcclCalls::is_all_on_gpu(const Collective& call) {
    if (reduces(call.verb)) return nccl_reduces(call.input, call.reduction);
    const bool is_all_to_all = call.verb == Verb::all_to_all || call.verb == Verb::all_to_all_uneven;
    return !is_all_to_all || !overlap(call.input, call.output);
}

DPTK_INLINE void NcclCalls::issue(std::span<const Message> messages, StreamRef stream) {
    comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
        for (const Message& message : messages) {
            const Buffer& buffer = message.buffer;
            group.add(
                message.verb == Verb::send
                    ? ncclSend(buffer.data, buffer.bytes(), ncclUint8, message.peer, comm, stream.get())
                    : ncclRecv(buffer.data, buffer.bytes(), ncclUint8, message.peer, comm, stream.get()));
        }
    });
}

DPTK_INLINE void NcclCalls::issue(const Collective& call, StreamRef stream) {
    if (call.input.bytes() == 0 && call.output.bytes() == 0) return;
    switch (call.verb) {
        case Verb::all_reduce:
        case Verb::reduce:
        case Verb::reduce_scatter: return issue_reduction(call, stream);
        case Verb::broadcast:
            return comm_->launch("ncclBroadcast", [&](ncclComm_t comm) {
                return ncclBroadcast(call.input.data, call.output.data, call.output.bytes(), ncclUint8,
                                     call.root, comm, stream.get());
            });
        case Verb::all_gather:
            return comm_->launch("ncclAllGather", [&](ncclComm_t comm) {
                return ncclAllGather(call.input.data, call.output.data, call.input.bytes(), ncclUint8, comm,
                                     stream.get());
            });
        case Verb::all_gather_uneven: return issue_all_gather_uneven(call, stream);
        case Verb::gather: return issue_gather(call, stream);
        case Verb::scatter: return issue_scatter(call, stream);
        case Verb::all_to_all: {
            const std::vector<std::size_t> counts(static_cast<std::size_t>(size()),
                                                  call.input.count / static_cast<std::size_t>(size()));
            return issue_all_to_all(call, counts, counts, stream);
        }
        case Verb::all_to_all_uneven: return issue_all_to_all(call, call.counts, call.output_counts, stream);
        case Verb::barrier:
        case Verb::allocate:
        case Verb::duplicate:
        case Verb::subgroup:
        case Verb::send:
        case Verb::recv:
        case Verb::probe: break;  // not collectives on memory
    }
}

DPTK_INLINE void NcclCalls::issue_reduction(const Collective& call, StreamRef stream) {
    if (!nccl_reduces(call.input, call.reduction))
        return NcclHostReduction(*comm_, pool(), host_stage_, call, stream).run([&](StreamRef on) {
            return work_after(on);
        });
    const NcclElements in = *nccl_numbers(call.input);
    if (!call.reduction.weight) {
        const bool is_copy = size() == 1 && call.reduction.op == ReduceOp::avg;
        const ncclRedOp_t op = is_copy ? ncclSum : *nccl_op(call.input.dtype, call.reduction);
        return issue_reduction(call, {.count = in.count}, in.type, op, stream);
    }
    double weight = *call.reduction.weight;
    auto narrow_weight = static_cast<float>(weight);
    void* scalar = in.type == ncclFloat64 ? static_cast<void*>(&weight) : &narrow_weight;
    ncclRedOp_t weighted{};
    comm_->launch("ncclRedOpCreatePreMulSum", [&](ncclComm_t comm) {
        return ncclRedOpCreatePreMulSum(&weighted, scalar, in.type, ncclScalarHostImmediate, comm);
    });
    for (const Part& part : parts_of_weighted(in)) issue_reduction(call, part, in.type, weighted, stream);
    comm_->launch("ncclRedOpDestroy", [&](ncclComm_t comm) { return ncclRedOpDestroy(weighted, comm); });
}

DPTK_INLINE std::vector<NcclCalls::Part> NcclCalls::parts_of_weighted(const NcclElements& in) const {
    if (size() > 1) return {{.count = in.count}};
    const std::size_t block = (std::size_t{16} << 10) / (in.type == ncclFloat64 ? 8 : 4);
    const std::size_t whole = in.count / block * block;
    std::vector<Part> parts;
    if (whole > 0) parts.push_back({.count = whole});
    if (whole < in.count) parts.push_back({.first = whole, .count = in.count - whole});
    return parts;
}

DPTK_INLINE void NcclCalls::issue_reduction(const Collective& call, const Part& part, ncclDataType_t type,
                                            ncclRedOp_t op, StreamRef stream) {
    const std::size_t offset = part.first * (type == ncclFloat64 ? 8 : 4);  // 0 except for weighted sums
    const void* from = static_cast<const std::byte*>(call.input.data) + offset;
    void* to = static_cast<std::byte*>(call.output.data) + offset;
    switch (call.verb) {
        case Verb::all_reduce:
            return comm_->launch("ncclAllReduce", [&](ncclComm_t comm) {
                return ncclAllReduce(from, to, part.count, type, op, comm, stream.get());
            });
        case Verb::reduce:
            return comm_->launch("ncclReduce", [&](ncclComm_t comm) {
                return ncclReduce(from, to, part.count, type, op, call.root, comm, stream.get());
            });
        default:
            return comm_->launch("ncclReduceScatter", [&](ncclComm_t comm) {
                return ncclReduceScatter(from, to, part.count / static_cast<std::size_t>(size()), type, op,
                                         comm, stream.get());
            });
    }
}

DPTK_INLINE void NcclCalls::issue_all_gather_uneven(const Collective& call, StreamRef stream) {
    const algorithms::Slices parts(call.output, call.counts);
    comm_->launch_group("ncclBroadcast", [&](ncclComm_t comm, NcclGroup& group) {
        for (int root = 0; root < size(); ++root) {
            const Buffer& part = parts[root];
            if (part.bytes() == 0) continue;
            const void* from = root == rank() ? call.input.data : part.data;
            group.add(ncclBroadcast(from, part.data, part.bytes(), ncclUint8, root, comm, stream.get()));
        }
    });
}

DPTK_INLINE void NcclCalls::issue_gather(const Collective& call, StreamRef stream) {
    const std::size_t count = call.input.count;
    comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
        if (rank() != call.root) {
            group.add(
                ncclSend(call.input.data, call.input.bytes(), ncclUint8, call.root, comm, stream.get()));
            return;
        }
        for (int from = 0; from < size(); ++from) {
            const Buffer part = call.output.slice(static_cast<std::size_t>(from) * count, count);
            if (from != rank())
                group.add(ncclRecv(part.data, part.bytes(), ncclUint8, from, comm, stream.get()));
        }
    });
    if (rank() == call.root)
        copy(call.output.slice(static_cast<std::size_t>(rank()) * count, count), call.input, stream);
}

DPTK_INLINE void NcclCalls::issue_scatter(const Collective& call, StreamRef stream) {
    const std::size_t count = call.output.count;
    comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
        if (rank() != call.root) {
            group.add(
                ncclRecv(call.output.data, call.output.bytes(), ncclUint8, call.root, comm, stream.get()));
            return;
        }
        for (int to = 0; to < size(); ++to) {
            const Buffer part = call.input.slice(static_cast<std::size_t>(to) * count, count);
            if (to != rank()) group.add(ncclSend(part.data, part.bytes(), ncclUint8, to, comm, stream.get()));
        }
    });
    if (rank() == call.root)
        copy(call.output, call.input.slice(static_cast<std::size_t>(rank()) * count, count), stream);
}

DPTK_INLINE void NcclCalls::issue_all_to_all(const Collective& call, std::span<const std::size_t> counts,
                                             std::span<const std::size_t> output_counts, StreamRef stream) {
    std::optional<StreamMemory> apart;
    Buffer input = call.input;
    if (overlap(call.input, call.output)) {
        apart.emplace(pool(), input.bytes(), stream);
        input = apart->like(input, device());
        copy(input, call.input, stream);
    }
    const algorithms::Slices out(input, counts);
    const algorithms::Slices in(call.output, output_counts);
    comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, NcclGroup& group) {
        for (int other = 0; other < size(); ++other) {
            if (other == rank()) continue;
            if (out[other].bytes() != 0)
                group.add(
                    ncclSend(out[other].data, out[other].bytes(), ncclUint8, other, comm, stream.get()));
            if (in[other].bytes() != 0)
                group.add(ncclRecv(in[other].data, in[other].bytes(), ncclUint8, other, comm, stream.get()));
        }
    });
    if (in[rank()].bytes() != 0) copy(in[rank()], out[rank()], stream);
}

}  // namespace DPTK_NAMESPACE::detail
