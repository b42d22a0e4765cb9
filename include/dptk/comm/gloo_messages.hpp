/// Messages between two ranks over Gloo. Gloo ends the process where a message has another size than its
/// receiver expects, so each goes as two: its size with a number, and its data under that number.
#pragma once

#include "dptk/comm/gloo_library.hpp"

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/gloo_mesh.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// One message, posted by its constructor. Construct it, and call complete(), inside GlooMesh::run.
class GlooMessage {
  public:
    /// `number` is another one for each message of this rank.
    GlooMessage(gloo::Context& context, const Message& message, std::uint64_t number)
        : context_(context),
          message_(message),
          head_{message.buffer.bytes(), number},
          head_buffer_(context.createUnboundBuffer(head_.data(), sizeof head_)),
          data_buffer_(context.createUnboundBuffer(message.buffer.data, message.buffer.bytes())) {
        if (message.verb == Verb::send) {
            head_buffer_->send(message.peer, head_slot());
            if (has_data()) data_buffer_->send(message.peer, data_slot());
        } else if (message.peer == any_rank) {
            head_buffer_->recv(others(), head_slot());
        } else {
            head_buffer_->recv(message.peer, head_slot());
        }
    }

    GlooMessage(const GlooMessage&) = delete;  // Gloo knows where it lies
    GlooMessage& operator=(const GlooMessage&) = delete;

    /// Blocks. Returns the other rank. Throws MismatchError where the message has another size; its sender
    /// goes on to wait.
    int complete() {
        if (message_.verb == Verb::send) {
            head_buffer_->waitSend(longest_wait);
            if (has_data()) data_buffer_->waitSend(longest_wait);
            return message_.peer;
        }
        int from = message_.peer;
        head_buffer_->waitRecv(&from, longest_wait);
        if (head_[0] != message_.buffer.bytes()) {
            throw MismatchError(text("rank ", from, " sends ", head_[0], " bytes to rank ", context_.rank,
                                     ", which expects ", message_.buffer.bytes()));
        }
        if (has_data()) {
            data_buffer_->recv(from, data_slot());
            data_buffer_->waitRecv(longest_wait);
        }
        return from;
    }

  private:
    [[nodiscard]] bool has_data() const noexcept { return message_.buffer.bytes() != 0; }

    // Gloo's collectives use slots with small numbers in the first byte.
    [[nodiscard]] std::uint64_t head_slot() const noexcept {
        return std::uint64_t{0x40} << 56 | static_cast<std::uint32_t>(message_.tag);
    }
    [[nodiscard]] std::uint64_t data_slot() const noexcept { return std::uint64_t{0x42} << 56 | head_[1]; }

    [[nodiscard]] std::vector<int> others() const {
        std::vector<int> ranks;
        for (int rank = 0; rank < context_.size; ++rank) {
            if (rank != context_.rank) ranks.push_back(rank);
        }
        return ranks;
    }

    gloo::Context& context_;
    Message message_;
    std::array<std::uint64_t, 2> head_;
    std::unique_ptr<gloo::transport::UnboundBuffer> head_buffer_;
    std::unique_ptr<gloo::transport::UnboundBuffer> data_buffer_;
};

}  // namespace dptk::detail
