/// Collective and Message, type-erased descriptions of one call. A Collective holds the parameters that must
/// agree between ranks, and this rank's buffers. The typed verbs pass it through an engine to the transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

/// The kind of a call: a collective, a message, or the collective creation of memory or of a group.
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
    all_to_all_uneven,
    barrier,
    allocate,
    duplicate,
    subgroup,
    send,
    recv,
    probe,
};

/// Returns the name of the verb for error texts: "all_reduce".
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
        case Verb::all_to_all_uneven: return "all_to_all_uneven";
        case Verb::barrier: return "barrier";
        case Verb::allocate: return "allocate";
        case Verb::duplicate: return "duplicate";
        case Verb::subgroup: return "subgroup";
        case Verb::send: return "send";
        case Verb::recv: return "recv";
        case Verb::probe: return "probe";
    }
    return "no verb";
}

/// Whether the verb combines the ranks' elements with a reduction.
[[nodiscard]] constexpr bool reduces(Verb verb) noexcept {
    return verb == Verb::all_reduce || verb == Verb::reduce || verb == Verb::reduce_scatter;
}

/// Whether one rank is the root of the call.
[[nodiscard]] constexpr bool has_root(Verb verb) noexcept {
    constexpr auto bit = [](Verb one) { return 1U << static_cast<unsigned>(one); };
    return (bit(verb) &
            (bit(Verb::reduce) | bit(Verb::broadcast) | bit(Verb::gather) | bit(Verb::scatter))) != 0;
}

/// Whether the call has an input or an output buffer.
[[nodiscard]] constexpr bool has_buffers(Verb verb) noexcept {
    return verb != Verb::barrier && verb != Verb::allocate && verb != Verb::duplicate &&
           verb != Verb::subgroup;
}

/// One collective call on one rank, as the transport carries it out.
struct Collective {
    Verb verb = Verb::barrier;  ///< The kind of call.
    /// The buffer that this rank contributes. In scatter, ranks other than the root ignore it. In allocate,
    /// it has no data, and its count is the number of bytes.
    Buffer input = {};
    /// The buffer that receives this rank's result. In reduce and gather, ranks other than the root ignore
    /// it. The call works in place if input and output are the same memory, or if the smaller of the two is
    /// this rank's part of the other.
    Buffer output = {};
    Reduction reduction = {};  ///< How elements are combined, if the verb reduces.
    int root = 0;              ///< The root, if the verb has one.
    /// In all_gather_uneven, the number of elements of each rank; in all_to_all_uneven, the number of
    /// elements that this rank sends to each rank. Must live as long as the operation.
    std::span<const std::size_t> counts = {};
    /// In all_to_all_uneven, the number of elements that this rank receives from each rank. Must live as long
    /// as the operation.
    std::span<const std::size_t> output_counts = {};
    /// The stream of the call on device memory: the call runs after the stream's earlier work and before its
    /// later work.
    StreamRef stream = {};
    /// The algorithm of an all_reduce; `automatic` means the group's.
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
    /// The time limit of the call; 0 means the group's.
    std::chrono::milliseconds timeout{0};
    /// For error texts: the index of the gradient bucket that this call reduces, or -1. Only for calls
    /// without a root.
    int bucket = -1;

    /// Returns the buffer whose count and dtype are the same on all ranks (in all_gather_uneven and
    /// all_to_all_uneven, only the dtype).
    [[nodiscard]] const Buffer& shared_shape() const noexcept {
        return verb == Verb::scatter ? output : input;
    }

    /// Returns the device of the call's memory.
    [[nodiscard]] Device device() const noexcept { return shared_shape().device; }
};

/// Returns whether two ranks' calls match: the same verb, dtype, count, operation and root.
[[nodiscard]] bool agree(const Collective& a, const Collective& b) noexcept;

namespace detail {

[[nodiscard]] bool overlap(const Buffer& a, const Buffer& b) noexcept;

}  // namespace detail

/// Returns whether two calls of this rank share any byte that at least one of them writes.
[[nodiscard]] bool share_memory(const Collective& a, const Collective& b) noexcept;

namespace detail {

/// A call without the addresses of its buffers, packed into the two words that a CallTracker holds.
class PackedCall {
  public:
    explicit PackedCall(const Collective& call) noexcept {
        const int op = call.reduction.user != nullptr ? user_function : static_cast<int>(call.reduction.op);
        set(call.verb, op, call.shared_shape(), has_root(call.verb) ? call.root : call.bucket);
        if (!call.counts.empty()) [[unlikely]]
            set_count(call);
    }

    PackedCall(Verb verb, const Buffer& buffer, int peer, int tag) noexcept;

    explicit PackedCall(CallTracker::Call call) noexcept : first_(call.first), second_(call.second) {}

    [[nodiscard]] CallTracker::Call words() const noexcept { return {first_, second_}; }

    [[nodiscard]] Verb verb() const noexcept { return static_cast<Verb>(byte(0)); }

    /// Returns the peer of a message (-1 for any rank), the root of a call that has a root, or the bucket of
    /// any other call (-1 for none).
    [[nodiscard]] int peer() const noexcept { return static_cast<int>(first_ >> 32); }

    /// Returns the call for error texts: "all_reduce(sum, 100 x f32)", or "recv(4 x i32, from rank 1, tag
    /// 7)".
    [[nodiscard]] std::string describe() const;

  private:
    static constexpr int user_function = 0xff;

    void set(Verb verb, int op, const Buffer& shape, int rank) noexcept {
        first_ = static_cast<std::uint64_t>(verb) | static_cast<std::uint64_t>(op) << 8 |
                 static_cast<std::uint64_t>(shape.dtype) << 16 |
                 static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank)) << 32;
        second_ = shape.count;
    }

    /// Sets the count of a call whose counts differ between ranks.
    void set_count(const Collective& call) noexcept;

    [[nodiscard]] int byte(int position) const noexcept;

    [[nodiscard]] int tag() const noexcept;

    [[nodiscard]] std::string_view op_name() const noexcept;

    std::uint64_t first_ = 0;
    std::uint64_t second_ = 0;
};

[[nodiscard]] std::string describe_packed(CallTracker::Call call);

/// Returns a hash of everything that must be the same on all ranks of the call. A transport that matches
/// messages by tags puts it into the tags, so that ranks whose calls differ do not exchange data.
[[nodiscard]] std::uint64_t hash_of(const Collective& call) noexcept;

[[nodiscard]] Collective allocation_call(std::size_t bytes) noexcept;

// The errors of the typed verbs. All of these functions throw ArgumentError.
[[noreturn]] void refuse_devices(const Collective& call);
[[noreturn]] void refuse_root(const Collective& call, int rank, int size);
[[noreturn]] void refuse_count(const Collective& call, std::size_t expected, std::size_t found, int rank,
                               int size);
[[noreturn]] void refuse_counts(Verb verb, std::size_t found, int rank, int size);
[[noreturn]] void refuse_sum(Verb verb, std::string_view buffer, std::size_t expected, std::size_t found,
                             int rank);

}  // namespace detail

/// Returns a call for error texts: "all_reduce(sum, 100 x f32)".
[[nodiscard]] std::string describe(const Collective& call);

struct MessageInfo;

namespace detail {

[[noreturn]] void refuse_element_size(const MessageInfo& message, std::size_t element_size);

/// Returns the error of a message whose size is not that of the receiver's buffer. `sent` says what was sent.
[[nodiscard]] MismatchError wrong_size(int from, std::string_view sent, int to, std::size_t expected_bytes);

}  // namespace detail

/// Wildcard for the source rank, as MPI_ANY_SOURCE: recv accepts a message from any rank.
inline constexpr int any_rank = -1;

/// The largest tag of user messages. Collectives use the tags from max_tag + 1 to 2 * max_tag + 1.
inline constexpr int max_tag = 16383;

/// Wildcard for the tag of a probe, as MPI_ANY_TAG: a message with any tag.
inline constexpr int any_tag = -1;

/// A message that has been sent to this rank, and that this rank has not received yet.
struct MessageInfo {
    int source = 0;         ///< The sender.
    int tag = 0;            ///< The message's tag.
    std::size_t bytes = 0;  ///< The size of the message.

    /// Returns the number of elements of type T. Throws MismatchError if the size is no multiple of
    /// sizeof(T).
    template <Element T>
    [[nodiscard]] std::size_t count() const {
        if (bytes % sizeof(T) != 0) detail::refuse_element_size(*this, sizeof(T));
        return bytes / sizeof(T);
    }
};

/// One message between two ranks, as seen by one of them. `verb` is send or recv.
struct Message {
    Verb verb = Verb::send;  ///< send or recv.
    Buffer buffer = {};      ///< The elements to send, or the memory that receives them.
    int peer = 0;            ///< The other rank; any_rank in a recv from any rank.
    int tag = 0;             ///< Only messages with equal tags match.
    /// The stream of the call on device memory, as in a Collective.
    StreamRef stream = {};
    /// The time limit of the call; 0 means the group's.
    std::chrono::milliseconds timeout{0};
};

namespace detail {

[[nodiscard]] PackedCall pack(const Message& message) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/collective.ipp"
#endif
