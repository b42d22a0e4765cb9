/// Point-to-point messages over Gloo. Gloo kills the process if a message has another size than the receiver
/// expects. So each message is sent as two Gloo messages: a header, and the data, in a slot with the number
/// that the header contains. The headers of the program's messages arrive in gloo/inbox.hpp. Those of a
/// collective's messages have a slot for each call, so that ranks whose calls differ exchange nothing.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/gloo/inbox.hpp"
#include "dptk/comm/gloo/library.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// One message, posted by its constructor. The constructor and complete() must run inside GlooMesh::run.
class GlooMessage {
  public:
    /// `number` must be unique among the messages of this rank.
    GlooMessage(gloo::Context& context, std::shared_ptr<GlooInbox> inbox, const Message& message,
                std::uint64_t number);
    ~GlooMessage();

    GlooMessage(const GlooMessage&) = delete;  // Gloo keeps pointers to the members
    GlooMessage& operator=(const GlooMessage&) = delete;

    /// Blocks until the message is transferred. Returns the other rank. Throws MismatchError if the message
    /// and the receive buffer differ in size; the sender then keeps waiting.
    int complete();

  private:
    [[nodiscard]] bool has_data() const noexcept { return message_.buffer.bytes() != 0; }

    [[nodiscard]] bool is_of_collective() const noexcept { return message_.tag > max_tag; }

    [[nodiscard]] std::uint64_t header_slot() const noexcept {
        return is_of_collective() ? GlooInbox::slot | static_cast<std::uint32_t>(message_.tag)
                                  : GlooInbox::slot;
    }

    [[nodiscard]] static std::uint64_t data_slot(const GlooHeader& header) noexcept {
        return std::uint64_t{0x42} << 56 | header.number;
    }

    gloo::Context& context_;
    std::shared_ptr<GlooInbox> inbox_;
    Message message_;
    GlooHeader header_;
    std::unique_ptr<gloo::transport::UnboundBuffer> header_buffer_;
    std::shared_ptr<GlooInbox::Wanted> wanted_;  // for a message of the program that is received
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
