/// BasicCommunicator<Transport> is the typed owner of a transport: MpiCommunicator, ThreadCommunicator and
/// their siblings are its names. Use it where the transport is known at compile time; ProcessGroup, which any
/// of them moves into, where it is not, and for groups of some of the ranks.
#pragma once

#include <memory>
#include <utility>

#include "dptk/comm/detail/transport_channel.hpp"
#include "dptk/comm/message_verbs.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Moved, never copied. Closing it (destruction) completes what was started; where an exception unwinds past
/// it, it communicates no more and marks the job as broken, so that the other ranks end as well.
template <class T>
class BasicCommunicator : public CollectiveVerbs<BasicCommunicator<T>>,
                          public MessageVerbs<BasicCommunicator<T>> {
    static_assert(detail::checked_transport<T>());

  public:
    /// Takes the transport over.
    explicit BasicCommunicator(T transport)
        : channel_(std::make_unique<detail::TransportChannel<T>>(std::move(transport))) {}

    /// Goes on with a channel that there is.
    explicit BasicCommunicator(std::unique_ptr<detail::TransportChannel<T>> channel)
        : channel_(std::move(channel)) {}

    /// An independent communicator over the same ranks: calls on one never meet calls on the other.
    /// Collective.
    [[nodiscard]] BasicCommunicator duplicate()
        requires detail::HasDuplicate<T>
    {
        return BasicCommunicator(std::unique_ptr<detail::TransportChannel<T>>(
            static_cast<detail::TransportChannel<T>*>(channel_->duplicate().release())));
    }

    /// The engine below: what all verbs go through.
    [[nodiscard]] detail::TransportChannel<T>& channel() { return *channel_; }
    /// The same.
    [[nodiscard]] const detail::TransportChannel<T>& channel() const { return *channel_; }

    /// Gives the channel away, for ProcessGroup.
    [[nodiscard]] std::unique_ptr<detail::Channel> release() && { return std::move(channel_); }

  private:
    std::unique_ptr<detail::TransportChannel<T>> channel_;
};

}  // namespace DPTK_NAMESPACE
