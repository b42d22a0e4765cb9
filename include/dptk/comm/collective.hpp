/// One collective call as a value: the verb with all that must agree between ranks, and this rank's buffers.
/// It is what travels from the typed verbs through a channel to the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/activity.hpp"
#include "dptk/core/buffer.hpp"

namespace dptk {

enum class Verb : std::uint8_t { all_reduce, broadcast, all_gather, barrier, duplicate };

[[nodiscard]] constexpr std::string_view verb_name(Verb verb) noexcept {
    switch (verb) {
        case Verb::all_reduce: return "all_reduce";
        case Verb::broadcast: return "broadcast";
        case Verb::all_gather: return "all_gather";
        case Verb::barrier: return "barrier";
        case Verb::duplicate: return "duplicate";
    }
    return "no verb";
}

struct Collective {
    Verb verb = Verb::barrier;
    /// What this rank gives. all_reduce and broadcast work in place: input and output are the same.
    Buffer input = {};
    /// What this rank gets.
    Buffer output = {};
    ReduceOp op = ReduceOp::sum;
    int root = 0;
};

/// Whether two ranks' calls fit together: the same verb, dtype, count, operation and root.
[[nodiscard]] inline bool agree(const Collective& a, const Collective& b) noexcept {
    if (a.verb != b.verb) return false;
    if (a.verb == Verb::barrier || a.verb == Verb::duplicate) return true;
    return a.input.dtype == b.input.dtype && a.input.count == b.input.count && a.op == b.op &&
           a.root == b.root;
}

/// Whether two calls of this rank use any byte in common.
[[nodiscard]] inline bool share_memory(const Collective& a, const Collective& b) noexcept {
    const auto overlap = [](const Buffer& x, const Buffer& y) {
        const auto* x_begin = static_cast<const std::byte*>(x.data);
        const auto* y_begin = static_cast<const std::byte*>(y.data);
        return std::less<>{}(x_begin, y_begin + y.bytes()) && std::less<>{}(y_begin, x_begin + x.bytes());
    };
    return overlap(a.output, b.output) || overlap(a.output, b.input) || overlap(a.input, b.output);
}

/// A call for messages: "all_reduce(sum, 100 x f32)".
[[nodiscard]] inline std::string describe(const Collective& call) {
    std::string out(verb_name(call.verb));
    if (call.verb == Verb::barrier || call.verb == Verb::duplicate) return out;
    out += '(';
    if (call.verb == Verb::all_reduce) out += detail::text(reduce_op_name(call.op), ", ");
    if (call.verb == Verb::broadcast) out += detail::text("root ", call.root, ", ");
    return out + detail::text(call.input.count, " x ", dtype_name(call.input.dtype), ")");
}

namespace detail {

/// All of a call that describe() shows, in two words.
[[nodiscard]] inline Activity::Call pack(const Collective& call) noexcept {
    const auto byte = [](auto value, int position) {
        return static_cast<std::uint64_t>(value) << (8 * position);
    };
    const auto root = static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
    return {byte(call.verb, 0) | byte(call.op, 1) | byte(call.input.dtype, 2) | root, call.input.count};
}

[[nodiscard]] inline std::string describe_packed(Activity::Call packed) {
    const auto byte = [&](int position) { return static_cast<std::uint8_t>(packed.first >> (8 * position)); };
    Collective call;
    call.verb = static_cast<Verb>(byte(0));
    call.op = static_cast<ReduceOp>(byte(1));
    call.input.dtype = static_cast<DType>(byte(2));
    call.input.count = static_cast<std::size_t>(packed.second);
    call.root = static_cast<int>(packed.first >> 32);
    return describe(call);
}

}  // namespace detail

}  // namespace dptk
