#pragma once

#include "dptk/comm/shm/reduce_scatter.hpp"

#include <algorithm>

#include "dptk/comm/algorithms/exchange.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void ShmReduceScatter::run(const Collective& call) {
    const Buffer& input = call.input;
    const Buffer& output = call.output;
    const std::byte* const own_place =
        part_of(input, context_.hosts().local()[static_cast<std::size_t>(region_.rank())], output);
    if (overlap(input, output) && output.data != own_place) {  // other ranks still read the input
        const algorithms::Scratch apart(output);
        Collective other = call;
        other.output = apart.buffer();
        run(other);
        return shm_copy(output.data, apart.buffer().data, output.bytes());
    }
    if (context_.one_host()) return reduce_host(call, output, call.reduction, context_.world());
    // `partial` holds this host's results for the ranks with this local rank, `sum` the result of all hosts
    // for this rank. Their dtype may be wider than the output's.
    Buffer partial = output;
    partial.dtype = partial_dtype(output.dtype, call.reduction);
    Buffer sum = partial;
    partial.count *= static_cast<std::size_t>(context_.hosts().count());
    partial.data = context_.scratch(partial.bytes() + sum.bytes());
    if (sum.dtype != output.dtype) sum.data = static_cast<std::byte*>(partial.data) + partial.bytes();
    const ReduceOp op = partial_op(call.reduction);
    reduce_host(call, partial, op, 1);
    context_.across({.verb = Verb::reduce_scatter, .input = partial, .output = sum, .reduction = op});
    const void* const from = sum.data;
    reduce_together({{&from, 1}, {&output.data, 1}, output.count, context_.world()}, sum, output.dtype,
                    call.reduction);
}

DPTK_INLINE void ShmReduceScatter::reduce_host(const Collective& call, const Buffer& to,
                                               const Reduction& reduction, double divisor) {
    const Buffer& input = call.input;
    const Buffer& output = call.output;
    if (input.bytes() <= ShmRegion::slot_bytes) {
        shm_copy(region_.next_slot(), input.data, input.bytes());
        context_.enter_barrier(call);
        return reduce_parts(output, to, 0, output.count, reduction, divisor, [&](int rank, int part) {
            return region_.slot_of(rank) + static_cast<std::size_t>(part) * output.bytes();
        });
    }
    context_.enter_barrier(call, context_.address_of(input));
    if (const ShmContext::Parts parts = context_.common_memory(); parts.first != nullptr) {
        reduce_parts(output, to, 0, output.count, reduction, divisor, [&](int rank, int part) {
            return parts.at(rank, region_.record_of(rank).address.offset) +
                   static_cast<std::size_t>(part) * output.bytes();
        });
        return region_.leave_barrier();
    }
    const auto world = static_cast<std::size_t>(context_.hosts().world);
    const std::size_t es = output.element_size();
    const std::size_t piece = std::max<std::size_t>(context_.stage_bytes() / world / es, 1);
    for (std::size_t done = 0; done < output.count; done += piece) {
        const std::size_t count = std::min(piece, output.count - done);
        for (std::size_t part = 0; part < world; ++part)
            shm_copy(region_.next_stage() + part * count * es,
                     part_of(input, static_cast<int>(part), output) + done * es, count * es);
        region_.enter_barrier({});
        reduce_parts(output, to, done, count, reduction, divisor, [&](int rank, int part) {
            return region_.stage_of(rank) + static_cast<std::size_t>(part) * count * es;
        });
    }
}

DPTK_INLINE const std::byte* ShmReduceScatter::part_of(const Buffer& input, int part, const Buffer& like) {
    return static_cast<const std::byte*>(input.data) + static_cast<std::size_t>(part) * like.bytes();
}

}  // namespace DPTK_NAMESPACE::detail
