#pragma once

#include "dptk/comm/shm/collectives.hpp"

#include <utility>

#include "dptk/comm/shm/all_reduce.hpp"
#include "dptk/comm/shm/gather_broadcast.hpp"
#include "dptk/comm/shm/reduce_scatter.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NodeCollectives::NodeCollectives(NodeGround ground) : ground_(std::move(ground)) {}

DPTK_INLINE std::vector<void*> NodeCollectives::peer_memory(const Buffer& memory) const {
    return ground_.peer_memory(memory);
}

DPTK_INLINE bool NodeCollectives::serves(const Collective& call) const noexcept {
    const Buffer& shape = call.shared_shape();
    const auto world = static_cast<std::size_t>(ground_.hosts().world);
    if (shape.on_device() || shape.element_size() * world > NodeHub::stage_bytes) return false;
    switch (call.verb) {
        case Verb::all_reduce: return can_be_combined(call);
        case Verb::reduce_scatter: return ground_.hosts().even && can_be_combined(call);
        case Verb::all_gather: return ground_.hosts().even;
        case Verb::broadcast:
        case Verb::barrier: return true;
        default: return false;
    }
}

DPTK_INLINE void NodeCollectives::run(const Collective& call) {
    switch (call.verb) {
        case Verb::all_reduce: return NodeAllReduce(ground_).run(call);
        case Verb::reduce_scatter: return NodeReduceScatter(ground_).run(call);
        case Verb::all_gather: return NodeAllGather(ground_).run(call);
        case Verb::broadcast: return NodeBroadcast(ground_).run(call);
        default: return barrier(call);
    }
}

DPTK_INLINE bool NodeCollectives::can_be_combined(const Collective& call) const noexcept {
    if (ground_.one_host()) return true;
    const Reduction& reduction = call.reduction;
    const bool sums = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg;
    return reduction.user == nullptr && (sums || !needs_wide_accumulation(call.input.dtype, reduction));
}

DPTK_INLINE void NodeCollectives::barrier(const Collective& call) {
    ground_.meet(call);
    if (ground_.one_host()) return;
    if (ground_.rank() == 0) ground_.across(call);
    ground_.hub().part();
}

}  // namespace DPTK_NAMESPACE::detail
