/// TCP transport: connects ranks on any hosts, without a library. The rendezvous uses a Store. If the job
/// fails, or a connection is lost, all waits end immediately.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

class TcpTransport;
struct TcpOptions;

namespace detail {

class ControlPlane;
class TcpMesh;
struct TcpReceive;
struct TcpSend;

/// Creates the transports of a job that has a control plane.
struct TcpFactory {
    using Options = TcpOptions;

    static constexpr std::string_view name = "tcp";

    /// `address` is where other hosts reach this one; empty if unknown. `job_ranks` are the numbers of the
    /// ranks in the job; empty if they are all of its ranks.
    [[nodiscard]] static std::unique_ptr<Transport> make(const TcpOptions& options,
                                                         std::shared_ptr<ControlPlane> control,
                                                         const std::string& address,
                                                         std::vector<int> job_ranks = {});
};

}  // namespace detail

/// Options of TcpTransport: this rank, and how it connects to the others.
struct TcpOptions {
    int rank = 0;  ///< This process's rank.
    int size = 1;  ///< The number of ranks.
    /// The store for the rendezvous. Not needed if there is only one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The prefix of the keys in the store. Transports that share a store need different prefixes.
    std::string name = "tcp";
    /// Where to listen: a network interface, or a host name or address of this host. If empty, and `hosts`
    /// says that all ranks are on one host, the rank listens at a loopback address, otherwise on all
    /// interfaces.
    std::string interface = "";
    /// Timeout for connecting to a rank.
    std::chrono::milliseconds timeout = default_timeout;
    /// The host of each rank, by rank. If empty, each rank counts as the only rank on its host.
    std::vector<std::string> hosts = {};
};

/// A Transport over TCP. Two ranks connect when one of them first sends to the other. Messages of up to 256
/// KiB are sent at once, as long as the receiver stores at most 1 MiB of such messages from this rank; others
/// wait at the sender until the receiver waits for them. All duplicates and subgroups use the same
/// connections. Collectives are composed of messages, which name their call: if two ranks' calls differ, a
/// rank throws MismatchError with both calls, and the job ends.
class TcpTransport final : public Transport {
  public:
    /// Starts to listen. Throws ArgumentError for invalid options, and BackendError if the rank cannot
    /// listen.
    explicit TcpTransport(const TcpOptions& options) : TcpTransport(options, nullptr, {}, {}) {}

    [[nodiscard]] int rank() const noexcept override { return rank_; }
    [[nodiscard]] int size() const noexcept override { return size_; }
    [[nodiscard]] DPTK_INLINE int local_rank() const override;
    [[nodiscard]] DPTK_INLINE int local_size() const override;
    [[nodiscard]] std::string_view backend() const noexcept override { return detail::TcpFactory::name; }

    [[nodiscard]] TransportCapabilities capabilities() const noexcept override {
        return {.recv_any = true,
                .probe = true,
                .start_message = true,
                .duplicate = true,
                .subgroup = true,
                .progress = true,
                .is_interruptible = true};
    }

    /// Sends a message. Blocks. Like all message calls, throws ArgumentError if the peer is not another rank,
    /// and PeerLostError if the peer is lost or has left.
    DPTK_INLINE void send(const Buffer& buffer, int to, int tag) override;

    /// Receives a message. Blocks. Throws MismatchError if the message and `buffer` differ in size.
    DPTK_INLINE void recv(const Buffer& buffer, int from, int tag) override;

    [[nodiscard]] DPTK_INLINE int recv_any(const Buffer& buffer, int tag) override;

    [[nodiscard]] DPTK_INLINE std::optional<MessageInfo> probe(int from, int tag) override;

    DPTK_INLINE void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> start_message(const Message& message) override;

    /// Executes a collective over messages.
    DPTK_INLINE void run(const Collective& call) override;

    /// Sends and receives what is possible without blocking.
    [[nodiscard]] DPTK_INLINE bool progress() override;

    /// Returns an independent transport over the same connections. Does not block.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    /// Returns a transport over `ranks`, with the same connections. Does not block.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    /// Closes the group, as the destructor does. Does not block.
    void leave() noexcept override { membership_.reset(); }

  private:
    friend struct detail::TcpFactory;

    /// The ranks of this group.
    struct Group {
        std::string name;
        std::vector<int> ranks;  // their numbers in the job
        std::vector<std::string> hosts;
    };

    class CollectiveMessages;

    /// Creates the connections of a job: see TcpFactory::make().
    TcpTransport(const TcpOptions& options, std::shared_ptr<detail::ControlPlane> control,
                 const std::string& address, std::vector<int> job_ranks);

    /// Creates a group of a job, in which this rank has the number `rank`.
    TcpTransport(std::shared_ptr<detail::TcpMesh> mesh, std::shared_ptr<detail::ControlPlane> control,
                 int rank, Group group);

    [[nodiscard]] static std::shared_ptr<detail::TcpMesh> make_mesh(
        const TcpOptions& options, const std::shared_ptr<detail::ControlPlane>& control,
        const std::string& address, std::vector<int> job_ranks);

    /// Runs an operation on the mesh. If it fails because a rank is lost, throws the job's first cause.
    template <class Operation>
    void run_on_mesh(Operation&& operation);

    [[nodiscard]] detail::TcpSend sending(const Buffer& buffer, int to, int tag) const;
    [[nodiscard]] detail::TcpReceive receiving(const Buffer& buffer, int from, int tag) const;
    [[nodiscard]] int number_of(int peer) const;

    std::shared_ptr<detail::TcpMesh> mesh_;          // null if there is only one rank
    std::shared_ptr<detail::ControlPlane> control_;  // null if the communicator creates it
    Group group_;
    std::uint64_t id_;
    int rank_;
    int size_;
    int duplicates_ = 0;
    std::uint64_t calls_ = 0;           // the collectives of this group
    std::shared_ptr<void> membership_;  // its deleter closes the group
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/transport.ipp"
#endif
