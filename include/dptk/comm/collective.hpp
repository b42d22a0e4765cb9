/// One call as a value: a collective with all that must agree between ranks and this rank's buffers, or a
/// message. It is what travels from the typed verbs through a channel to the transport.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/activity.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk {

enum class Verb : std::uint8_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    all_gather_uneven,
    gather,
    scatter,
    reduce_scatter,
    all_to_all,
    barrier,
    allocate,
    duplicate,
    subgroup,
    send,
    recv,
};

[[nodiscard]] constexpr std::string_view verb_name(Verb verb) noexcept {
    switch (verb) {
        case Verb::all_reduce: return "all_reduce";
        case Verb::reduce: return "reduce";
        case Verb::broadcast: return "broadcast";
        case Verb::all_gather: return "all_gather";
        case Verb::all_gather_uneven: return "all_gather_uneven";
        case Verb::gather: return "gather";
        case Verb::scatter: return "scatter";
        case Verb::reduce_scatter: return "reduce_scatter";
        case Verb::all_to_all: return "all_to_all";
        case Verb::barrier: return "barrier";
        case Verb::allocate: return "allocate";
        case Verb::duplicate: return "duplicate";
        case Verb::subgroup: return "subgroup";
        case Verb::send: return "send";
        case Verb::recv: return "recv";
    }
    return "no verb";
}

[[nodiscard]] constexpr bool reduces(Verb verb) noexcept {
    return verb == Verb::all_reduce || verb == Verb::reduce || verb == Verb::reduce_scatter;
}

[[nodiscard]] constexpr bool has_root(Verb verb) noexcept {
    return verb == Verb::reduce || verb == Verb::broadcast || verb == Verb::gather || verb == Verb::scatter;
}

[[nodiscard]] constexpr bool has_buffers(Verb verb) noexcept {
    return verb != Verb::barrier && verb != Verb::allocate && verb != Verb::duplicate &&
           verb != Verb::subgroup;
}

struct Collective {
    Verb verb = Verb::barrier;
    /// What this rank gives. Without data where it gives nothing: scatter's on ranks other than the root, and
    /// allocate's, whose bytes it counts.
    Buffer input = {};
    /// What this rank gets. Where it is the input's memory, or has the input at this rank's place in it, the
    /// call works in place. Without data where this rank gets nothing: reduce's and gather's on ranks other
    /// than the root.
    Buffer output = {};
    Reduction reduction = {};
    int root = 0;
    /// all_gather_uneven: how many elements each rank gives. Lives as long as the operation.
    std::span<const std::size_t> counts = {};
    /// Device memory is used behind what this stream does before, and before what it does then.
    StreamRef stream = {};
    /// The number of the gradient bucket that a call without a root is about, for messages; -1 for none.
    int bucket = -1;

    /// The buffer whose count and dtype are the same on all ranks (all_gather_uneven: the rank's own part).
    [[nodiscard]] const Buffer& shared_shape() const noexcept {
        return verb == Verb::scatter ? output : input;
    }

    /// Where its memory lies.
    [[nodiscard]] Device device() const noexcept { return shared_shape().device; }
};

/// Whether two ranks' calls fit together: the same verb, dtype, count, operation and root.
[[nodiscard]] inline bool agree(const Collective& a, const Collective& b) noexcept {
    if (a.verb != b.verb) return false;
    if (a.verb == Verb::allocate) return a.input.count == b.input.count;
    if (!has_buffers(a.verb)) return true;
    const Buffer& x = a.shared_shape();
    const Buffer& y = b.shared_shape();
    if (x.dtype != y.dtype || x.element_size() != y.element_size()) return false;
    if (reduces(a.verb)) {
        if (a.reduction.op != b.reduction.op) return false;
        if ((a.reduction.user == nullptr) != (b.reduction.user == nullptr)) return false;
    }
    if (has_root(a.verb) && a.root != b.root) return false;
    if (a.verb == Verb::all_gather_uneven) return std::ranges::equal(a.counts, b.counts);
    return x.count == y.count;
}

namespace detail {

[[nodiscard]] inline bool overlap(const Buffer& a, const Buffer& b) noexcept {
    const auto* a_begin = static_cast<const std::byte*>(a.data);
    const auto* b_begin = static_cast<const std::byte*>(b.data);
    return std::less<>{}(a_begin, b_begin + b.bytes()) && std::less<>{}(b_begin, a_begin + a.bytes());
}

}  // namespace detail

/// Whether two calls of this rank use any byte in common that one of them writes.
[[nodiscard]] inline bool share_memory(const Collective& a, const Collective& b) noexcept {
    return detail::overlap(a.output, b.output) || detail::overlap(a.output, b.input) ||
           detail::overlap(a.input, b.output);
}

namespace detail {

/// A call without its memory, in the two words that an Activity holds.
class PackedCall {
  public:
    explicit PackedCall(const Collective& call) noexcept {
        const Buffer& shape = call.shared_shape();
        const int op = call.reduction.user != nullptr ? user_function : static_cast<int>(call.reduction.op);
        set(call.verb, op, shape, has_root(call.verb) ? call.root : call.bucket);
        if (call.verb != Verb::all_gather_uneven) return;
        second_ = 0;
        for (const std::size_t count : call.counts) second_ += count;
    }

    PackedCall(Verb verb, const Buffer& buffer, int peer, int tag) noexcept {
        set(verb, tag & 0xff, buffer, peer);
        first_ |= static_cast<std::uint64_t>(tag >> 8) << 24;
    }

    explicit PackedCall(Activity::Call call) noexcept : first_(call.first), second_(call.second) {}

    [[nodiscard]] Activity::Call words() const noexcept { return {first_, second_}; }

    [[nodiscard]] Verb verb() const noexcept { return static_cast<Verb>(byte(0)); }

    /// The rank for which a message waits; -1 for any.
    [[nodiscard]] int peer() const noexcept { return static_cast<int>(first_ >> 32); }

    /// "all_reduce(sum, 100 x f32)", "recv(4 x i32, from rank 1, tag 7)"
    [[nodiscard]] std::string describe() const {
        std::string out(verb_name(verb()));
        if (verb() == Verb::allocate) return out + text('(', second_, " bytes)");
        if (!has_buffers(verb())) return out;
        out += '(';
        if (reduces(verb())) out += text(op_name(), ", ");
        if (has_root(verb())) out += text("root ", peer(), ", ");
        out += text(second_, " x ", dtype_name(static_cast<DType>(byte(2))));
        if (verb() == Verb::all_gather_uneven) out += " of all ranks";
        const bool is_message = verb() == Verb::send || verb() == Verb::recv;
        if (!is_message && !has_root(verb()) && peer() >= 0) out += text(", bucket ", peer());
        if (is_message) {
            out += verb() == Verb::send ? ", to " : ", from ";
            out += peer() < 0 ? std::string("any rank") : text("rank ", peer());
            if (tag() != 0) out += text(", tag ", tag());
        }
        return out + ')';
    }

  private:
    static constexpr int user_function = 0xff;

    void set(Verb verb, int op, const Buffer& shape, int rank) noexcept {
        first_ = static_cast<std::uint64_t>(verb) | static_cast<std::uint64_t>(op) << 8 |
                 static_cast<std::uint64_t>(shape.dtype) << 16 |
                 static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank)) << 32;
        second_ = shape.count;
    }

    [[nodiscard]] int byte(int position) const noexcept {
        return static_cast<int>(first_ >> (8 * position) & 0xff);
    }

    [[nodiscard]] int tag() const noexcept { return byte(1) | byte(3) << 8; }

    [[nodiscard]] std::string_view op_name() const noexcept {
        return byte(1) == user_function ? "user's function" : reduce_op_name(static_cast<ReduceOp>(byte(1)));
    }

    std::uint64_t first_ = 0;
    std::uint64_t second_ = 0;
};

[[nodiscard]] inline std::string describe_packed(Activity::Call call) {
    return PackedCall(call).describe();
}

}  // namespace detail

namespace detail {

[[nodiscard]] inline Collective allocation_call(std::size_t bytes) noexcept {
    return {.verb = Verb::allocate, .input = {nullptr, bytes, DType::u8, {}, 0}};
}

}  // namespace detail

/// A call for messages: "all_reduce(sum, 100 x f32)".
[[nodiscard]] inline std::string describe(const Collective& call) {
    return detail::PackedCall(call).describe();
}

/// A rank that stands for all: recv takes a message from whoever sends one.
inline constexpr int any_rank = -1;

/// Of the messages that users send; collectives use those above.
inline constexpr int max_tag = 16383;

/// One message between two ranks, as seen by one of them. `verb` is send or recv.
struct Message {
    Verb verb = Verb::send;
    Buffer buffer = {};
    int peer = 0;
    int tag = 0;
    /// As in a Collective.
    StreamRef stream = {};
};

namespace detail {

[[nodiscard]] inline PackedCall pack(const Message& message) noexcept {
    return {message.verb, message.buffer, message.peer, message.tag};
}

}  // namespace detail

}  // namespace dptk
