/// BasicCommunicator<Transport> is a communicator over a transport that is known at compile time.
/// MpiCommunicator, ThreadCommunicator and similar names are aliases of it. Use ProcessGroup if the transport
/// is known only at run time, or for subgroups. Any BasicCommunicator can be moved into a ProcessGroup.
#pragma once

#include <memory>
#include <utility>

#include "dptk/comm/coalesced.hpp"
#include "dptk/comm/detail/checked_transport.hpp"
#include "dptk/comm/detail/transport_channel.hpp"
#include "dptk/comm/message_verbs.hpp"
#include "dptk/comm/objects.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over transport T: collectives and point-to-point messages. It can be moved, but not copied.
/// Its destructor completes the started operations. During exception unwinding the destructor does not
/// communicate but marks the job as failed, so that the other ranks end as well.
template <class T>
class BasicCommunicator : public CollectiveVerbs<BasicCommunicator<T>>,
                          public CoalescedVerbs<BasicCommunicator<T>>,
                          public ObjectVerbs<BasicCommunicator<T>>,
                          public MessageVerbs<BasicCommunicator<T>> {
    static_assert(detail::checked_transport<T>());

  public:
    /// Creates a communicator that owns `transport`.
    explicit BasicCommunicator(T transport)
        : channel_(std::make_unique<detail::TransportChannel<T>>(std::move(transport))) {}

    /// Creates a communicator that owns `transport`, in a job whose processes report failures to each other
    /// through the init method or the store of the options: an exception on one rank, or its loss, then ends
    /// the calls of the others, as with init_process_group(), whose errors this constructor throws. Rank,
    /// world size and backend are those of the transport. Without an init method and a store, a call only has
    /// its time limit. Collective; blocks.
    BasicCommunicator(T transport, const InitOptions& options)
        requires(!detail::HasControl<T>)
        : channel_(std::make_unique<detail::TransportChannel<T>>(std::move(transport), options)) {}

    /// Creates a communicator that owns an existing channel.
    explicit BasicCommunicator(std::unique_ptr<detail::TransportChannel<T>> channel)
        : channel_(std::move(channel)) {}

    /// Creates an independent communicator over the same ranks, as MPI_Comm_dup does: calls on one never
    /// match calls on the other. Collective.
    [[nodiscard]] BasicCommunicator duplicate()
        requires detail::HasDuplicate<T>
    {
        return BasicCommunicator(std::unique_ptr<detail::TransportChannel<T>>(
            static_cast<detail::TransportChannel<T>*>(channel_->duplicate().release())));
    }

    /// Returns the channel that executes all calls. For internal use by dptk: the interface of the channel
    /// may change in any version.
    [[nodiscard]] detail::TransportChannel<T>& channel() { return *channel_; }
    /// Returns the channel that executes all calls. For internal use by dptk: the interface of the channel
    /// may change in any version.
    [[nodiscard]] const detail::TransportChannel<T>& channel() const { return *channel_; }

    /// Releases the channel to the caller; used by ProcessGroup.
    [[nodiscard]] std::unique_ptr<detail::Channel> release() && { return std::move(channel_); }

  private:
    std::unique_ptr<detail::TransportChannel<T>> channel_;
};

}  // namespace DPTK_NAMESPACE
