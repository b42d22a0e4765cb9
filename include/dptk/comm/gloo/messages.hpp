/// Point-to-point messages over Gloo. Gloo kills the process if a message has another size than the receiver
/// expects. So each message is sent as two Gloo messages: a header with the size and a number, and the data,
/// which is tagged with this number.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/gloo/library.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// One message, posted by its constructor. The constructor and complete() must run inside GlooMesh::run.
class GlooMessage {
  public:
    /// `number` must be unique among the messages of this rank.
    GlooMessage(gloo::Context& context, const Message& message, std::uint64_t number);

    GlooMessage(const GlooMessage&) = delete;  // Gloo keeps pointers to the members
    GlooMessage& operator=(const GlooMessage&) = delete;

    /// Blocks until the message is transferred. Returns the other rank. Throws MismatchError if the message
    /// and the receive buffer differ in size; the sender then keeps waiting.
    int complete();

  private:
    [[nodiscard]] bool has_data() const noexcept { return message_.buffer.bytes() != 0; }

    // Gloo's collectives use slots with small numbers in the most significant byte.
    [[nodiscard]] std::uint64_t head_slot() const noexcept;
    [[nodiscard]] std::uint64_t data_slot() const noexcept { return std::uint64_t{0x42} << 56 | head_[1]; }

    [[nodiscard]] std::vector<int> others() const;

    gloo::Context& context_;
    Message message_;
    std::array<std::uint64_t, 2> head_;
    std::unique_ptr<gloo::transport::UnboundBuffer> head_buffer_;
    std::unique_ptr<gloo::transport::UnboundBuffer> data_buffer_;
};

/// Waits for started messages in the background, since Gloo only offers blocking waits. Messages to, or from,
/// the same rank with the same tag end in the order in which they were started, so one thread waits for them.
class GlooMessageQueues {
  public:
    /// Runs `complete`, which waits for the message, after the earlier messages of the same kind.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message, QueuedWork::Operation complete);

  private:
    /// Queues whose threads have nothing to do are closed if there are more queues than this.
    static constexpr std::size_t kept_queues = 16;

    struct Kind {
        Verb verb;
        int peer;
        int tag;

        friend auto operator<=>(const Kind&, const Kind&) = default;
    };

    std::map<Kind, WorkQueue> queues_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/messages.ipp"
#endif
