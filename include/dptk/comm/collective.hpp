/// One call as a value: a collective with all that must agree between ranks and this rank's buffers, or a
/// message. It is what travels from the typed verbs through a channel to the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

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
[[nodiscard]] bool agree(const Collective& a, const Collective& b) noexcept;

namespace detail {

[[nodiscard]] bool overlap(const Buffer& a, const Buffer& b) noexcept;

}  // namespace detail

/// Whether two calls of this rank use any byte in common that one of them writes.
[[nodiscard]] bool share_memory(const Collective& a, const Collective& b) noexcept;

namespace detail {

/// A call without its memory, in the two words that an CallTracker holds.
class PackedCall {
  public:
    explicit PackedCall(const Collective& call) noexcept {
        const int op = call.reduction.user != nullptr ? user_function : static_cast<int>(call.reduction.op);
        set(call.verb, op, call.shared_shape(), has_root(call.verb) ? call.root : call.bucket);
        if (call.verb != Verb::all_gather_uneven) return;
        second_ = 0;
        for (const std::size_t count : call.counts) second_ += count;
    }

    PackedCall(Verb verb, const Buffer& buffer, int peer, int tag) noexcept;

    explicit PackedCall(CallTracker::Call call) noexcept : first_(call.first), second_(call.second) {}

    [[nodiscard]] CallTracker::Call words() const noexcept { return {first_, second_}; }

    [[nodiscard]] Verb verb() const noexcept { return static_cast<Verb>(byte(0)); }

    /// The rank for which a message waits; -1 for any.
    [[nodiscard]] int peer() const noexcept { return static_cast<int>(first_ >> 32); }

    /// "all_reduce(sum, 100 x f32)", "recv(4 x i32, from rank 1, tag 7)"
    [[nodiscard]] std::string describe() const;

  private:
    static constexpr int user_function = 0xff;

    void set(Verb verb, int op, const Buffer& shape, int rank) noexcept {
        first_ = static_cast<std::uint64_t>(verb) | static_cast<std::uint64_t>(op) << 8 |
                 static_cast<std::uint64_t>(shape.dtype) << 16 |
                 static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank)) << 32;
        second_ = shape.count;
    }

    [[nodiscard]] int byte(int position) const noexcept;

    [[nodiscard]] int tag() const noexcept;

    [[nodiscard]] std::string_view op_name() const noexcept;

    std::uint64_t first_ = 0;
    std::uint64_t second_ = 0;
};

[[nodiscard]] std::string describe_packed(CallTracker::Call call);

}  // namespace detail

namespace detail {

[[nodiscard]] Collective allocation_call(std::size_t bytes) noexcept;

}  // namespace detail

/// A call for messages: "all_reduce(sum, 100 x f32)".
[[nodiscard]] std::string describe(const Collective& call);

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

[[nodiscard]] PackedCall pack(const Message& message) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/collective.ipp"
#endif
