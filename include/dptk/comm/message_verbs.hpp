/// Messages between two ranks of a group: send and recv. Communicators and ProcessGroup inherit them.
///
/// Nobody but the two ranks takes part. Messages with one tag from one rank to another arrive in the order in
/// which they were sent; a message and its receiver have the same number of bytes. Over threads, MPI and Gloo
/// messages are independent of collectives that go on in the background; over a transport that brings nothing
/// but send and recv, they take their turn behind what was started before: there, one of two ranks that
/// exchange messages sends first, and the other one receives first.
#pragma once

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/ranges.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// `Self` gives channel(): the Channel that carries the calls.
template <class Self>
class MessageVerbs {
  public:
    /// Sends to rank `to`. Blocks until the elements may be changed again, perhaps until they have been
    /// received. Throws ArgumentError for a rank that is not another one, and for a tag outside [0, max_tag].
    template <ElementRange R>
    void send(R&& data, int to, int tag = 0, StreamRef stream = {}) {
        channel().run(Message{Verb::send, detail::buffer_of(data), to, tag, stream});
    }

    /// Starts to send. `data` must live until the Work is done.
    template <ElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work send_async(R&& data, int to, int tag = 0, StreamRef stream = {}) {
        return channel().start(Message{Verb::send, detail::buffer_of(data), to, tag, stream},
                               detail::owner_of_all(data));
    }

    /// Receives from rank `from`, or from whichever rank sends with this tag (any_rank). Blocks; returns the
    /// sender. Throws MismatchError, which breaks the group, where the message has another size, and
    /// ArgumentError for any_rank where the transport cannot do that.
    template <MutableElementRange R>
    int recv(R&& data, int from = any_rank, int tag = 0, StreamRef stream = {}) {
        return channel().run(Message{Verb::recv, detail::buffer_of(data), from, tag, stream});
    }

    /// Starts to receive; Work::source_rank tells the sender. `data` must live until the Work is done.
    template <MutableElementRange R>
        requires OutlivesCall<R>
    [[nodiscard]] Work recv_async(R&& data, int from = any_rank, int tag = 0, StreamRef stream = {}) {
        return channel().start(Message{Verb::recv, detail::buffer_of(data), from, tag, stream},
                               detail::owner_of_all(data));
    }

  private:
    [[nodiscard]] detail::Channel& channel() { return static_cast<Self&>(*this).channel(); }
};

}  // namespace DPTK_NAMESPACE
