/// Collectives over nothing but send and recv, for transports that bring no more. Binomial trees: log2(ranks)
/// rounds, the same bits on every rank, and no deadlock when send blocks until the message is received.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/transport.hpp"

namespace dptk::algorithms {

/// Tags of the messages of collectives, apart from small non-negative ones that a user would choose.
inline constexpr int collective_tag = 0x6470;

/// Sends the root's elements to all.
template <Transport T>
void broadcast(T& transport, const Buffer& data, int root) {
    const int size = transport.size();
    const int position = (transport.rank() - root + size) % size;  // the root's is 0
    const auto rank_at = [&](int other) { return (other + root) % size; };

    // A rank receives from the one that differs in its highest bit, then serves the ranks above.
    int reach = 1;
    while (reach <= position) reach *= 2;
    if (position > 0) transport.recv(data, rank_at(position - reach / 2), collective_tag);
    for (; position + reach < size; reach *= 2)
        transport.send(data, rank_at(position + reach), collective_tag);
}

/// Combines all ranks' elements in place, up a tree to rank 0 and down again.
template <Transport T>
void all_reduce(T& transport, const Buffer& data, ReduceOp op) {
    const int rank = transport.rank();
    const int size = transport.size();
    std::vector<std::byte> received(data.bytes());
    const Buffer other{received.data(), data.count, data.dtype, data.device};
    for (int step = 1; step < size; step *= 2) {
        if (rank % (2 * step) != 0) {
            transport.send(data, rank - step, collective_tag);
            break;
        }
        if (rank + step < size) {
            transport.recv(other, rank + step, collective_tag);
            detail::combine(data, other, op);
        }
    }
    if (op == ReduceOp::avg && rank == 0) detail::divide(data, size);
    algorithms::broadcast(transport, data, 0);
}

/// output = the inputs of all ranks in rank order. output.count = size * input.count.
template <Transport T>
void all_gather(T& transport, const Buffer& input, const Buffer& output) {
    const int rank = transport.rank();
    const auto part = [&](int of) {
        return output.slice(static_cast<std::size_t>(of) * input.count, input.count);
    };
    if (input.bytes() != 0) std::memmove(part(rank).data, input.data, input.bytes());
    for (int other = 1; other < transport.size(); ++other) {
        if (rank == 0) transport.recv(part(other), other, collective_tag);
        if (rank == other) transport.send(part(rank), 0, collective_tag);
    }
    algorithms::broadcast(transport, output, 0);
}

/// Returns when all ranks have called it.
template <Transport T>
void barrier(T& transport) {
    std::uint8_t token = 0;
    algorithms::all_reduce(transport, Buffer{&token, 1, DType::u8, {}}, ReduceOp::max);
}

/// Carries a call out, through the transport's own verb where it has one.
template <Transport T>
void run(T& transport, const Collective& call) {
    switch (call.verb) {
        case Verb::all_reduce:
            if constexpr (detail::HasAllReduce<T>) return transport.all_reduce(call.output, call.op);
            return algorithms::all_reduce(transport, call.output, call.op);
        case Verb::broadcast:
            if constexpr (detail::HasBroadcast<T>) return transport.broadcast(call.output, call.root);
            return algorithms::broadcast(transport, call.output, call.root);
        case Verb::all_gather:
            if constexpr (detail::HasAllGather<T>) return transport.all_gather(call.input, call.output);
            return algorithms::all_gather(transport, call.input, call.output);
        case Verb::barrier:
            if constexpr (detail::HasBarrier<T>) return transport.barrier();
            return algorithms::barrier(transport);
        case Verb::duplicate: break;  // has a result, and is no call on memory
    }
}

}  // namespace dptk::algorithms
