#pragma once

#include "dptk/comm/shm/collectives.hpp"

#include <utility>

#include "dptk/comm/shm/all_reduce.hpp"
#include "dptk/comm/shm/gather_broadcast.hpp"
#include "dptk/comm/shm/reduce_scatter.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ShmCollectives::ShmCollectives(ShmContext context) : context_(std::move(context)) {}

DPTK_INLINE std::vector<void*> ShmCollectives::peer_memory(const Buffer& memory) const {
    return context_.peer_memory(memory);
}

DPTK_INLINE bool ShmCollectives::serves(const Collective& call) const noexcept {
    const Buffer& shape = call.shared_shape();
    const auto world = static_cast<std::size_t>(context_.hosts().world);
    if (shape.on_device() || shape.element_size() * world > ShmRegion::stage_bytes) return false;
    switch (call.verb) {
        case Verb::all_reduce: return can_be_combined(call);
        case Verb::reduce_scatter: return context_.hosts().even && can_be_combined(call);
        case Verb::all_gather: return context_.hosts().even;
        case Verb::broadcast:
        case Verb::barrier: return true;
        default: return false;
    }
}

DPTK_INLINE void ShmCollectives::run(const Collective& call) {
    switch (call.verb) {
        case Verb::all_reduce: return ShmAllReduce(context_).run(call);
        case Verb::reduce_scatter: return ShmReduceScatter(context_).run(call);
        case Verb::all_gather: return ShmAllGather(context_).run(call);
        case Verb::broadcast: return ShmBroadcast(context_).run(call);
        default: return barrier(call);
    }
}

DPTK_INLINE bool ShmCollectives::can_be_combined(const Collective& call) const noexcept {
    if (context_.one_host()) return true;
    const Reduction& reduction = call.reduction;
    const bool sums = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg;
    return reduction.user == nullptr && (sums || !needs_wide_accumulation(call.input.dtype, reduction));
}

DPTK_INLINE void ShmCollectives::barrier(const Collective& call) {
    context_.enter_barrier(call);
    if (context_.one_host()) return;
    if (context_.rank() == 0) context_.across(call);
    context_.region().leave_barrier();
}

}  // namespace DPTK_NAMESPACE::detail
