/// Building blocks of the collective algorithms: exchange of messages (send to one rank while receiving
/// from another), and partition of a buffer into one slice per rank.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::algorithms {

/// Returns the tag of the messages of a collective, outside the range of user tags. Calls that differ almost
/// always have different tags, so that their messages do not match.
[[nodiscard]] int collective_tag(const Collective& call) noexcept;

/// Workspace of the size of a buffer, for a copy or for receiving. Its elements are not initialized.
class Scratch {
  public:
    explicit Scratch(const Buffer& like)
        : memory_(like.bytes() == 0 ? nullptr : std::make_unique_for_overwrite<std::byte[]>(like.bytes())),
          buffer_(like.at(memory_.get())) {}

    [[nodiscard]] const Buffer& buffer() const noexcept { return buffer_; }

  private:
    std::unique_ptr<std::byte[]> memory_;
    Buffer buffer_;
};

/// Partitions `count` elements into `ranks` slices, and returns the number of elements of each slice. The
/// numbers differ by at most 1; larger slices come first.
[[nodiscard]] std::vector<std::size_t> slice_counts(std::size_t count, int ranks);

/// A buffer that is partitioned into one slice per rank.
class Slices {
  public:
    Slices(const Buffer& buffer, std::span<const std::size_t> counts);

    [[nodiscard]] const Buffer& operator[](int rank) const noexcept;

    /// Returns slice `rank` modulo the number of ranks; `rank` may be negative.
    [[nodiscard]] const Buffer& wrapped(int rank) const noexcept;

  private:
    std::vector<Buffer> slices_;
};

/// Large buffers are sent in segments of about this size, so that a rank works on one while the next one is
/// on its way. The buffers of a TCP connection hold several of them.
inline constexpr std::size_t segment_bytes = std::size_t{256} << 10;

/// Returns the number of segments of a buffer, at least 1.
[[nodiscard]] int segment_count(const Buffer& buffer) noexcept;

/// Partitions a buffer into segments.
[[nodiscard]] Slices segments_of(const Buffer& buffer, int count);

/// Interface to a transport for algorithms: blocking point-to-point messages.
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

    /// Sends to and receives from one other rank. Does not deadlock even if send() blocks until the message
    /// is received; nor does shift().
    virtual void exchange(const Buffer& out, const Buffer& in, int partner) = 0;

    /// Sends to the next rank and receives from the previous one in a ring, in which rank 0 follows the
    /// last rank.
    virtual void shift(const Buffer& out, const Buffer& in) = 0;
};

/// Calls action(partner) for every other rank, in rounds in which the ranks form disjoint pairs.
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
