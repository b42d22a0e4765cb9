#pragma once

#include "dptk/comm/transport.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// The messages of one collective over a transport.
class TransportMessages final : public algorithms::Messages {
  public:
    TransportMessages(Transport& transport, const Collective& call)
        : transport_(transport), tag_(algorithms::collective_tag(call)) {}

    [[nodiscard]] int rank() const override { return transport_.rank(); }
    [[nodiscard]] int size() const override { return transport_.size(); }
    void send(const Buffer& buffer, int to) override { transport_.send(buffer, to, tag_); }
    void recv(const Buffer& buffer, int from) override { transport_.recv(buffer, from, tag_); }

    void exchange(const Buffer& out, const Buffer& in, int partner) override {
        transport_.send_recv(out, partner, in, partner, tag_);
    }

    void shift(const Buffer& out, const Buffer& in) override {
        transport_.send_recv(out, (rank() + 1) % size(), in, (rank() + size() - 1) % size(), tag_);
    }

  private:
    Transport& transport_;
    int tag_;
};

[[noreturn]] DPTK_INLINE void refuse_capability(const Transport& transport, std::string_view member) {
    throw ArgumentError(
        text("rank ", transport.rank(), ": the transport ", transport.backend(), " has no ", member, "()"),
        {.rank = transport.rank()});
}

DPTK_INLINE std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    constexpr std::size_t address_space = std::size_t{1} << 48;
    if (bytes > address_space) throw std::bad_alloc();
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);
    return {memory, [](void* pointer) { std::free(pointer); }};
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE void Transport::run(const Collective& call) {
    detail::TransportMessages messages(*this, call);
    algorithms::over_messages(messages, call);
}

DPTK_INLINE std::function<void()> Transport::prepare(const Collective&) {
    return nullptr;
}

DPTK_INLINE std::shared_ptr<WorkState> Transport::start(const Collective&) {
    return nullptr;
}

DPTK_INLINE bool Transport::progress() {
    return false;
}

DPTK_INLINE int Transport::recv_any(const Buffer&, int) {
    detail::refuse_capability(*this, "recv_any");
}

// In an exchange with one rank, the lower rank sends first. In a ring, even ranks send first, and odd ranks
// receive first. With an odd number of ranks, both the last rank and its successor, rank 0, send first. This
// does not deadlock, since rank 0 sends to rank 1, which receives first.
DPTK_INLINE void Transport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    const bool sends_first = to == from ? rank() < to : rank() % 2 == 0;
    if (sends_first) send(out, to, tag);
    recv(in, from, tag);
    if (!sends_first) send(out, to, tag);
}

DPTK_INLINE std::optional<MessageInfo> Transport::probe(int, int) {
    detail::refuse_capability(*this, "probe");
}

DPTK_INLINE int Transport::transfer(const Message& message) {
    if (message.verb == Verb::send) {
        send(message.buffer, message.peer, message.tag);
    } else if (message.peer == any_rank) {
        return recv_any(message.buffer, message.tag);
    } else {
        recv(message.buffer, message.peer, message.tag);
    }
    return message.peer;
}

DPTK_INLINE std::shared_ptr<WorkState> Transport::start_message(const Message&) {
    detail::refuse_capability(*this, "start_message");
}

DPTK_INLINE std::unique_ptr<Transport> Transport::duplicate() {
    detail::refuse_capability(*this, "duplicate");
}

DPTK_INLINE std::unique_ptr<Transport> Transport::subgroup(std::span<const int>, std::string_view) {
    detail::refuse_capability(*this, "subgroup");
}

DPTK_INLINE std::shared_ptr<void> Transport::allocate(std::size_t bytes) {
    return detail::allocate_aligned(bytes);
}

DPTK_INLINE std::vector<void*> Transport::peer_memory(const Buffer&) const {
    return {};
}

DPTK_INLINE bool Transport::takes_device_memory(const Collective&) const {
    return false;
}

DPTK_INLINE DeviceMemory Transport::allocate_on_device(std::size_t) {
    detail::refuse_capability(*this, "allocate_on_device");
}

DPTK_INLINE std::shared_ptr<detail::ControlPlane> Transport::control() const {
    return nullptr;
}

}  // namespace DPTK_NAMESPACE
