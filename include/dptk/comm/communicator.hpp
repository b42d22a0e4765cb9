/// BasicCommunicator<Transport> is a communicator over a transport that is known at compile time.
/// MpiCommunicator, ThreadCommunicator and similar names are aliases of it. Use ProcessGroup if the transport
/// is known only at run time, or for subgroups. Any BasicCommunicator can be moved into a ProcessGroup.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "dptk/comm/coalesced.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/message_verbs.hpp"
#include "dptk/comm/objects.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over transport T: collectives and point-to-point messages. It can be moved, but not copied.
/// Its destructor completes the started operations. During exception unwinding the destructor does not
/// communicate but marks the job as failed, so that the other ranks end as well.
template <std::derived_from<Transport> T>
class BasicCommunicator : public CollectiveVerbs<BasicCommunicator<T>>,
                          public CoalescedVerbs<BasicCommunicator<T>>,
                          public ObjectVerbs<BasicCommunicator<T>>,
                          public MessageVerbs<BasicCommunicator<T>> {
  public:
    /// Creates a communicator that owns `transport`.
    explicit BasicCommunicator(T transport)
        : engine_(detail::Engine::open(std::make_unique<T>(std::move(transport)))) {}

    /// Creates a communicator that owns `transport`, in a job whose processes report failures to each other
    /// through the init method or the store of the options: an exception on one rank, or its loss, then ends
    /// the calls of the others, as with init_process_group(), whose errors this constructor throws. Rank,
    /// world size and backend are those of the transport. Without an init method and a store, a call only has
    /// its time limit. Options have no effect on dptk's own transports over MPI, NCCL, Gloo and threads,
    /// which report failures by themselves. Collective; blocks.
    BasicCommunicator(T transport, const InitOptions& options)
        : engine_(detail::Engine::open(std::make_unique<T>(std::move(transport)), options)) {}

    /// Creates a communicator that owns an existing engine.
    explicit BasicCommunicator(detail::EngineOwner engine) : engine_(std::move(engine)) {}

    /// Creates an independent communicator over the same ranks, as MPI_Comm_dup does: calls on one never
    /// match calls on the other. Collective. Throws ArgumentError if the transport has no duplicate().
    [[nodiscard]] BasicCommunicator duplicate() {
        return BasicCommunicator(detail::duplicate_or_throw(*engine_));
    }

    /// Returns the engine that executes all calls. For internal use by dptk: the interface of the engine
    /// may change in any version.
    [[nodiscard]] detail::Engine& engine() { return *engine_; }
    /// Returns the engine that executes all calls. For internal use by dptk: the interface of the engine
    /// may change in any version.
    [[nodiscard]] const detail::Engine& engine() const { return *engine_; }

    /// Releases the engine to the caller; used by ProcessGroup.
    [[nodiscard]] detail::EngineOwner release() && { return std::move(engine_); }

  private:
    detail::EngineOwner engine_;
};

}  // namespace DPTK_NAMESPACE
