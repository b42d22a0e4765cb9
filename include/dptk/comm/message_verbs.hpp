/// Point-to-point messages between two ranks of a group: send, recv and probe, blocking and asynchronous.
/// Communicators and ProcessGroup inherit them.
///
/// Only the sender and the receiver of a message make calls. Messages from one rank to another that have the
/// same tag arrive in the order in which they were sent. The receiver's buffer must have exactly as many
/// bytes as the message, or be an empty std::vector. Over threads, MPI, TCP and Gloo, messages are
/// independent of collectives that run in the background. A transport that provides only send and recv
/// executes messages in order, after all operations that were started earlier. If two ranks exchange messages
/// over such a transport, one must send first and the other must receive first.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <vector>

#include "dptk/comm/call_options.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/ranges.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class R>
[[nodiscard]] Message message_of(Verb verb, R& data, int peer, int tag, const CallOptions& options) {
    Message message{verb, buffer_of(data), peer, tag, options.stream};
    message.timeout = options.timeout;
    return message;
}

}  // namespace detail

/// The point-to-point calls of BasicCommunicator and ProcessGroup. `Self` provides engine(), which returns
/// the Engine that executes the calls.
template <class Self>
class MessageVerbs {
  public:
    /// Sends to rank `to`. Blocks until the elements may be changed again, possibly until the receiver has
    /// received them. Throws ArgumentError if `to` is this rank or not in the group, or if the tag is outside
    /// [0, max_tag].
    template <ElementRange R>
    void send(R&& data, int to, int tag = 0, const CallOptions& options = {}) {
        engine().run(detail::message_of(Verb::send, data, to, tag, options));
    }

    /// Starts to send to rank `to` and returns at once. `data` must live until the Work is done.
    template <ElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work send_async(R&& data, int to, int tag = 0, const CallOptions& options = {}) {
        return engine().start(detail::message_of(Verb::send, data, to, tag, options),
                              detail::owner_of_all(data));
    }

    /// Receives from rank `from`, or from any rank if `from` is any_rank, and returns the sender. Blocks.
    /// Throws MismatchError if the message does not have the size of `data`; the group is then unusable.
    /// Throws ArgumentError if `from` is any_rank and the transport does not support this.
    template <MutableElementRange R>
    int recv(R&& data, int from = any_rank, int tag = 0, const CallOptions& options = {}) {
        return engine().run(detail::message_of(Verb::recv, data, from, tag, options));
    }

    /// Overload for a std::vector. An empty vector receives a message of any length, and is resized to it.
    /// Any other vector must have the size of the message. Throws MismatchError if the message is not a whole
    /// number of elements; the message has not been received then. Over a transport without probe(), an empty
    /// vector receives a message without elements only.
    template <Element T>
        requires(!std::same_as<T, bool>)
    int recv(std::vector<T>& data, int from = any_rank, int tag = 0, const CallOptions& options = {}) {
        if (!data.empty() || !engine().can_probe()) return recv(std::span<T>(data), from, tag, options);
        const MessageInfo message = probe(from, tag, options);
        data.resize(message.count<T>());
        return recv(std::span<T>(data), message.source, tag, options);
    }

    /// Blocks until a message from rank `from` with this tag has been sent to this rank, and returns its
    /// sender, tag and size. The message remains to be received: recv(data, source, tag) receives it. `from`
    /// may be any_rank, and `tag` any_tag. Messages that a started recv waits for are not found. For messages
    /// in host memory only. Throws ArgumentError if the transport has no probe.
    [[nodiscard]] MessageInfo probe(int from = any_rank, int tag = any_tag, const CallOptions& options = {}) {
        Message message{Verb::probe, {}, from, tag, options.stream};
        message.timeout = options.timeout;
        return engine().probe(message);
    }

    /// As probe(), but returns null if there is no such message yet. Does not block.
    [[nodiscard]] std::optional<MessageInfo> try_probe(int from = any_rank, int tag = any_tag) {
        return engine().try_probe(Message{Verb::probe, {}, from, tag});
    }

    /// Starts to receive and returns at once. Work::source_rank() returns the sender. `data` must live
    /// until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work recv_async(R&& data, int from = any_rank, int tag = 0,
                                  const CallOptions& options = {}) {
        return engine().start(detail::message_of(Verb::recv, data, from, tag, options),
                              detail::owner_of_all(data));
    }

  private:
    [[nodiscard]] auto& engine() { return static_cast<Self&>(*this).engine(); }
};

}  // namespace DPTK_NAMESPACE
