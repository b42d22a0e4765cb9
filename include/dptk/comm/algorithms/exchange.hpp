/// The moves that algorithms are made of: sending to one rank while receiving from another, and cutting a
/// buffer into one slice a rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/comm/transport.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms {

/// Tag of the messages of collectives, apart from those that a user may choose.
inline constexpr int collective_tag = max_tag + 1;

/// Memory for a copy of a buffer, or for what is to be received.
class Scratch {
  public:
    explicit Scratch(const Buffer& like) : memory_(like.bytes()), buffer_(like.at(memory_.data())) {}

    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }

  private:
    std::vector<std::byte> memory_;
    Buffer buffer_;
};

/// How `count` elements are cut into one slice a rank, of nearly equal sizes, the larger ones first.
[[nodiscard]] std::vector<std::size_t> slice_counts(std::size_t count, int ranks);

/// A buffer cut into one slice a rank.
class Slices {
  public:
    Slices(const Buffer& buffer, std::span<const std::size_t> counts);

    [[nodiscard]] const Buffer& operator[](int rank) const noexcept;

    /// Of the slice that is `rank` places on in the ring.
    [[nodiscard]] const Buffer& around(int rank) const noexcept;

  private:
    std::vector<Buffer> slices_;
};

/// A transport as algorithms see it: messages between ranks, and nothing else.
class Messages {
  public:
    Messages() = default;
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;
    virtual ~Messages() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    virtual void send(const Buffer& buffer, int to) = 0;
    virtual void recv(const Buffer& buffer, int from) = 0;

    /// Exchanges with one other rank.
    virtual void exchange(const Buffer& out, const Buffer& in, int partner) = 0;

    /// Sends to the next rank, and receives from the one before; the last comes before the first.
    virtual void shift(const Buffer& out, const Buffer& in) = 0;
};

/// Does not deadlock where send blocks until the message is received.
template <Transport T>
class MessagesOver final : public Messages {
  public:
    explicit MessagesOver(T& transport) : transport_(transport) {}

    [[nodiscard]] int rank() const override { return transport_.rank(); }
    [[nodiscard]] int size() const override { return transport_.size(); }
    void send(const Buffer& buffer, int to) override { transport_.send(buffer, to, collective_tag); }
    void recv(const Buffer& buffer, int from) override { transport_.recv(buffer, from, collective_tag); }

    void exchange(const Buffer& out, const Buffer& in, int partner) override {
        both(out, partner, in, partner, rank() < partner);
    }

    /// Of two neighbours one sends first. With an odd number of ranks the last and the first both do, but the
    /// first's other neighbour receives.
    void shift(const Buffer& out, const Buffer& in) override {
        both(out, (rank() + 1) % size(), in, (rank() + size() - 1) % size(), rank() % 2 == 0);
    }

  private:
    void both(const Buffer& out, int to, const Buffer& in, int from, bool sends_first) {
        if constexpr (detail::HasSendRecv<T>) {
            transport_.send_recv(out, to, in, from, collective_tag);
        } else {
            if (sends_first) send(out, to);
            recv(in, from);
            if (!sends_first) send(out, to);
        }
    }

    T& transport_;
};

/// Calls action(partner) for each other rank, in rounds in which all ranks form pairs.
template <class Action>
void with_each_partner(const Messages& messages, Action&& action) {
    const int size = messages.size();
    for (int round = 0; round < size; ++round) {
        const int partner = (round - messages.rank() + size) % size;
        if (partner != messages.rank()) action(partner);
    }
}

}  // namespace DPTK_NAMESPACE::algorithms

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/algorithms/exchange.ipp"
#endif
