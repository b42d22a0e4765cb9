#pragma once

#include "dptk/comm/shm/reduce_scatter.hpp"

#include <algorithm>

#include "dptk/comm/algorithms/exchange.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void NodeReduceScatter::run(const Collective& call) {
    const Buffer& input = call.input;
    const Buffer& output = call.output;
    const std::byte* const own_place =
        part_of(input, ground_.hosts().local()[static_cast<std::size_t>(hub_.rank())], output);
    if (overlap(input, output) && output.data != own_place) {  // where others read meanwhile
        const algorithms::Scratch apart(output);
        Collective other = call;
        other.output = apart.buffer();
        run(other);
        return node_copy(output.data, apart.buffer().data, output.bytes());
    }
    if (ground_.one_host()) return reduce_host(call, output, call.reduction, ground_.world());
    // What ranks of this place on all hosts get, and then what this one does; wider than the output
    // perhaps.
    Buffer partial = output;
    partial.dtype = partial_dtype(output.dtype, call.reduction);
    Buffer sum = partial;
    partial.count *= static_cast<std::size_t>(ground_.hosts().count());
    partial.data = ground_.scratch(partial.bytes() + sum.bytes());
    if (sum.dtype != output.dtype) sum.data = static_cast<std::byte*>(partial.data) + partial.bytes();
    const ReduceOp op = partial_op(call.reduction);
    reduce_host(call, partial, op, 1);
    ground_.across({.verb = Verb::reduce_scatter, .input = partial, .output = sum, .reduction = op});
    const void* const from = sum.data;
    reduce_together({{&from, 1}, {&output.data, 1}, output.count, ground_.world()}, sum, output.dtype,
                    call.reduction);
}

DPTK_INLINE void NodeReduceScatter::reduce_host(const Collective& call, const Buffer& to,
                                                const Reduction& reduction, double divisor) {
    const Buffer& input = call.input;
    const Buffer& output = call.output;
    if (input.bytes() <= NodeHub::slot_bytes) {
        node_copy(hub_.next_slot(), input.data, input.bytes());
        ground_.meet(call);
        return reduce_parts(output, to, 0, output.count, reduction, divisor, [&](int rank, int part) {
            return hub_.slot_of(rank) + static_cast<std::size_t>(part) * output.bytes();
        });
    }
    ground_.meet(call, ground_.place_of(input));
    if (const NodeGround::Parts parts = ground_.common_memory(); parts.first != nullptr) {
        reduce_parts(output, to, 0, output.count, reduction, divisor, [&](int rank, int part) {
            return parts.at(rank, hub_.note_of(rank).place.offset) +
                   static_cast<std::size_t>(part) * output.bytes();
        });
        return hub_.part();
    }
    const auto world = static_cast<std::size_t>(ground_.hosts().world);
    const std::size_t es = output.element_size();
    const std::size_t piece = std::max<std::size_t>(ground_.stage_bytes() / world / es, 1);
    for (std::size_t done = 0; done < output.count; done += piece) {
        const std::size_t count = std::min(piece, output.count - done);
        for (std::size_t part = 0; part < world; ++part)
            node_copy(hub_.next_stage() + part * count * es,
                      part_of(input, static_cast<int>(part), output) + done * es, count * es);
        hub_.meet({});
        reduce_parts(output, to, done, count, reduction, divisor, [&](int rank, int part) {
            return hub_.stage_of(rank) + static_cast<std::size_t>(part) * count * es;
        });
    }
}

DPTK_INLINE const std::byte* NodeReduceScatter::part_of(const Buffer& input, int part, const Buffer& like) {
    return static_cast<const std::byte*>(input.data) + static_cast<std::size_t>(part) * like.bytes();
}

}  // namespace DPTK_NAMESPACE::detail
