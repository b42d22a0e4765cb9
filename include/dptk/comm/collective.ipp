#pragma once

#include "dptk/comm/collective.hpp"

#include <array>
#include <functional>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE bool agree(const Collective& a, const Collective& b) noexcept {
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
    if (a.verb == Verb::all_gather_uneven) return detail::equal(a.counts, b.counts);
    if (a.verb == Verb::all_to_all_uneven) return true;
    return x.count == y.count;
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool overlap(const Buffer& a, const Buffer& b) noexcept {
    const auto* a_begin = static_cast<const std::byte*>(a.data);
    const auto* b_begin = static_cast<const std::byte*>(b.data);
    return std::less<>{}(a_begin, b_begin + b.bytes()) && std::less<>{}(b_begin, a_begin + a.bytes());
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE bool share_memory(const Collective& a, const Collective& b) noexcept {
    return detail::overlap(a.output, b.output) || detail::overlap(a.output, b.input) ||
           detail::overlap(a.input, b.output);
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE PackedCall::PackedCall(Verb verb, const Buffer& buffer, int peer, int tag) noexcept {
    set(verb, tag & 0xff, buffer, peer);
    first_ |= static_cast<std::uint64_t>(tag >> 8) << 24;
}

DPTK_INLINE std::string PackedCall::describe() const {
    std::string out(verb_name(verb()));
    if (verb() == Verb::allocate) return out + text('(', second_, " bytes)");
    if (!has_buffers(verb())) return out;
    out += '(';
    if (reduces(verb())) out += text(op_name(), ", ");
    if (has_root(verb())) out += text("root ", peer(), ", ");
    if (verb() == Verb::probe) {
        out += "any length";
    } else {
        if (verb() != Verb::all_to_all_uneven) out += text(second_, " x ");
        out += dtype_name(static_cast<DType>(byte(2)));
    }
    if (verb() == Verb::all_gather_uneven) out += " of all ranks";
    const bool is_message = verb() == Verb::send || verb() == Verb::recv || verb() == Verb::probe;
    if (!is_message && !has_root(verb()) && peer() >= 0) out += text(", bucket ", peer());
    if (is_message) {
        out += verb() == Verb::send ? ", to " : ", from ";
        out += peer() < 0 ? std::string("any rank") : text("rank ", peer());
        if (tag() != 0) out += tag() > max_tag ? std::string(", any tag") : text(", tag ", tag());
    }
    return out + ')';
}

DPTK_INLINE void PackedCall::set_count(const Collective& call) noexcept {
    second_ = 0;
    if (call.verb == Verb::all_gather_uneven)
        for (const std::size_t count : call.counts) second_ += count;
}

DPTK_INLINE int PackedCall::byte(int position) const noexcept {
    return static_cast<int>(first_ >> (8 * position) & 0xff);
}

DPTK_INLINE int PackedCall::tag() const noexcept {
    return byte(1) | byte(3) << 8;
}

DPTK_INLINE std::string_view PackedCall::op_name() const noexcept {
    return byte(1) == user_function ? "user's function" : reduce_op_name(static_cast<ReduceOp>(byte(1)));
}

DPTK_INLINE std::string describe_packed(CallTracker::Call call) {
    return PackedCall(call).describe();
}

DPTK_INLINE std::uint64_t hash_of(const Collective& call) noexcept {
    const CallTracker::Call words = PackedCall(call).words();
    const std::uint64_t element_size = has_buffers(call.verb) ? call.shared_shape().element_size() : 0;
    const std::array<std::uint64_t, 3> all{words.first, words.second, element_size};
    const std::uint64_t hash = fnv1a({reinterpret_cast<const char*>(all.data()), sizeof all});
    if (call.verb == Verb::all_to_all_uneven) return hash;
    return fnv1a({reinterpret_cast<const char*>(call.counts.data()), call.counts.size_bytes()}, hash);
}

DPTK_INLINE Collective allocation_call(std::size_t bytes) noexcept {
    return {.verb = Verb::allocate, .input = {nullptr, bytes, DType::u8, {}, 0}};
}

DPTK_INLINE void refuse_devices(const Collective& call) {
    throw ArgumentError(text(verb_name(call.verb), ": the input is on ", device_name(call.input.device),
                             " and the output on ", device_name(call.output.device),
                             ": expected both on one device"));
}

DPTK_INLINE void refuse_root(const Collective& call, int rank, int size) {
    throw ArgumentError(text("rank ", rank, ": ", verb_name(call.verb), ": root ", call.root,
                             " is outside [0, ", size - 1, "]"));
}

DPTK_INLINE void refuse_count(const Collective& call, std::size_t expected, std::size_t found, int rank,
                              int size) {
    throw ArgumentError(text("rank ", rank, " of ", size, ": ", verb_name(call.verb), " of ",
                             call.input.count, " elements into ", call.output.count, ": expected ", expected,
                             " elements, got ", found));
}

DPTK_INLINE void refuse_counts(Verb verb, std::size_t found, int rank, int size) {
    throw ArgumentError(text("rank ", rank, ": ", verb_name(verb), ": expected ", size,
                             " counts, one for each rank, got ", found));
}

DPTK_INLINE void refuse_sum(Verb verb, std::string_view buffer, std::size_t expected, std::size_t found,
                            int rank) {
    throw ArgumentError(text("rank ", rank, ": ", verb_name(verb), ": the ", buffer, " has ", found,
                             " elements, but its counts add up to ", expected));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string describe(const Collective& call) {
    return detail::PackedCall(call).describe();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE PackedCall pack(const Message& message) noexcept {
    return {message.verb, message.buffer, message.peer, message.tag};
}

DPTK_INLINE void refuse_element_size(const MessageInfo& message, std::size_t element_size) {
    throw MismatchError(text("rank ", message.source, " sends ", message.bytes,
                             " bytes, which is not a multiple of the ", element_size, " bytes of an element"),
                        {.peer = message.source});
}

DPTK_INLINE MismatchError wrong_size(int from, std::string_view sent, int to, std::size_t expected_bytes) {
    return MismatchError(
        text("rank ", from, " sends ", sent, " to rank ", to, ", which expects ", expected_bytes, " bytes"),
        {.rank = to, .peer = from});
}

}  // namespace DPTK_NAMESPACE::detail
