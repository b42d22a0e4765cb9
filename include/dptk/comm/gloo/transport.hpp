/// Gloo transport: messages over Gloo, for ranks that were started without MPI. The rendezvous uses a Store.
/// If the job fails, all waits end immediately.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/work_queue.hpp"
#include "dptk/comm/gloo/messages.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

class GlooTransport;
struct GlooOptions;

namespace detail {

/// Creates the transports of a job that has a control plane.
struct GlooFactory {
    using Options = GlooOptions;

    static constexpr std::string_view name = "gloo";

    /// `address` is where other hosts reach this one; empty if unknown, or if there are none. `job_ranks` is
    /// not used.
    [[nodiscard]] static std::unique_ptr<Transport> make(GlooOptions options,
                                                         std::shared_ptr<ControlPlane> control,
                                                         const std::string& address = {},
                                                         const std::vector<int>& job_ranks = {});
};

}  // namespace detail

/// Options of GlooTransport: this rank, and how it connects to the others.
struct GlooOptions {
    int rank = 0;  ///< This process's rank.
    int size = 1;  ///< The number of ranks.
    /// The store for the rendezvous. Not needed if there is only one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The prefix of the keys in the store. Transports that share a store need different prefixes.
    std::string name = "gloo";
    /// Where to listen: a network interface, or a host name or address of this host. If empty, and `hosts`
    /// says that all ranks are on one host, the rank listens at a loopback address. Otherwise it listens at
    /// the only IPv4 address of its host that is not a loopback address. If there are several such addresses
    /// or none, it listens at the address to which the host's name resolves, or else at a loopback address.
    std::string interface = "";
    /// Timeout for each of two phases of connecting: until all ranks have published their addresses, and then
    /// until all ranks are connected.
    std::chrono::milliseconds timeout = default_timeout;
    /// The host of each rank, by rank. If empty, each rank counts as the only rank on its host.
    std::vector<std::string> hosts = {};
};

/// A Transport over Gloo. Collectives are composed of messages. They have no timeouts of their own; the
/// control plane enforces timeouts.
class GlooTransport final : public Transport {
  public:
    /// Connects to all other ranks. Collective; blocks. Throws ArgumentError for invalid options,
    /// TimeoutError with the ranks that are missing or cannot be reached, PeerLostError if the job fails
    /// meanwhile or a connection is refused, and BackendError if Gloo cannot listen.
    explicit GlooTransport(GlooOptions options) : GlooTransport(std::move(options), nullptr, nullptr) {}

    [[nodiscard]] int rank() const noexcept override { return options_.rank; }
    [[nodiscard]] int size() const noexcept override { return options_.size; }
    [[nodiscard]] DPTK_INLINE int local_rank() const override;
    [[nodiscard]] DPTK_INLINE int local_size() const override;
    [[nodiscard]] std::string_view backend() const noexcept override { return detail::GlooFactory::name; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return control_; }

    [[nodiscard]] TransportCapabilities capabilities() const noexcept override {
        return {.recv_any = true,
                .probe = true,
                .start_message = true,
                .duplicate = true,
                .subgroup = true,
                .is_interruptible = true};
    }

    /// Sends a message. Blocks. Like all message calls, throws ArgumentError if the peer is not another rank.
    void send(const Buffer& buffer, int to, int tag) override { complete({Verb::send, buffer, to, tag}); }

    /// Receives a message. Blocks. Throws MismatchError if the message and `buffer` differ in size; the
    /// sender then keeps waiting.
    void recv(const Buffer& buffer, int from, int tag) override { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) override {
        return complete({Verb::recv, buffer, any_rank, tag});
    }

    [[nodiscard]] DPTK_INLINE std::optional<MessageInfo> probe(int from, int tag) override;

    DPTK_INLINE void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override;

    /// Posts the message on this thread, and waits for the message on another thread.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> start_message(const Message& message) override;

    /// Returns a transport with connections of its own, over the same device. Collective.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    /// Creates a transport over `ranks`. Blocks until all of these ranks have made the call.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    /// Starts an orderly shutdown. Does not block. The connections stay open until all ranks have called
    /// leave(), so that no data is lost that is still being sent. The program's end waits for the shutdown.
    DPTK_INLINE void leave() noexcept override;

  private:
    friend struct detail::GlooFactory;

    /// By verb, peer and tag. Messages to, or from, the same rank with the same tag end in the order in which
    /// they were started, so one thread waits for them: Gloo only offers blocking waits.
    using Queues = std::map<std::tuple<Verb, int, int>, detail::WorkQueue>;

    /// Connects a job's ranks. Without a control plane, creates one that only has timeouts; without a device,
    /// listens.
    GlooTransport(GlooOptions options, std::shared_ptr<detail::ControlPlane> control,
                  std::shared_ptr<gloo::transport::Device> device);

    void check_peer(int peer) const;

    int complete(const Message& message);

    GlooOptions options_;
    std::shared_ptr<detail::ControlPlane> control_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<detail::GlooInbox> inbox_;  // null if there is only one rank
    std::unique_ptr<Queues> queues_ = std::make_unique<Queues>();
    int duplicates_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/transport.ipp"
#endif
