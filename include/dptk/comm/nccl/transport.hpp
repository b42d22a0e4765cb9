/// NCCL transport: collectives between ranks that have one GPU each. Calls on device memory are enqueued on
/// CUDA streams, and the host does not wait. Calls on host memory copy the elements to the GPU and back, and
/// block. A group over NCCL needs no other transport.
///
/// NCCL sums in its own order and in the elements' own dtype; see docs/collectives.md. Reductions that NCCL
/// does not support (bitwise operations, 16-bit integers, products of complex numbers, user-defined
/// functions, weighted sums of 16-bit floats) run on the host, in rank order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/allocation.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/nccl/calls.hpp"
#include "dptk/comm/nccl/comm.hpp"
#include "dptk/comm/nccl/peer_info.hpp"
#include "dptk/comm/nccl/work.hpp"
#include "dptk/comm/stream_transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE {

/// Options of NcclTransport: this rank, and how it connects to the others.
struct NcclOptions {
    int rank = 0;  ///< This process's rank.
    int size = 1;  ///< The number of ranks.
    /// The store for the rendezvous. Not needed if there is only one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The prefix of the keys in the store. Transports that share a store need different prefixes.
    std::string name = "nccl";
    /// The CUDA device. The default is the current one.
    std::optional<int> device = std::nullopt;
    /// Timeout for connecting, and for every call until it is enqueued on the GPU.
    std::chrono::milliseconds timeout = default_timeout;
    /// Whether several processes may use the same GPU: NCCL then treats them as different hosts and connects
    /// them by sockets. Must be equal on all ranks. The default is true if DPTK_NCCL_SHARE_GPU is 1, and
    /// false otherwise. If NCCL_HOSTID is not set, the first transport sets it with setenv, which is not safe
    /// while another thread calls getenv.
    std::optional<bool> share_gpu = std::nullopt;
    /// The control plane of the job. If the job fails, this transport's operations are aborted. If `control`
    /// is null, a control plane that only enforces timeouts is created for `job_state`.
    std::shared_ptr<detail::ControlPlane> control = nullptr;
    /// The state that records whether the job has failed. Only used if `control` is null.
    std::shared_ptr<detail::JobState> job_state = nullptr;
};

/// A Transport over NCCL, for ranks with one GPU each. Movable, not copyable.
class NcclTransport final : public StreamTransport {
  public:
    /// A collective function that accepts this rank's info, and returns the infos of all ranks, by rank.
    using PeerInfoExchange = std::function<std::vector<detail::NcclPeerInfo>(const detail::NcclPeerInfo&)>;

    /// Connects to all other ranks. Collective; blocks. Throws the same error on all ranks: BackendError if
    /// CUDA or NCCL does not work on one of them, MismatchError if their versions of NCCL differ, and
    /// ArgumentError if two of them use the same GPU. Also throws TimeoutError, which names the missing
    /// ranks, and PeerLostError if the job fails meanwhile.
    explicit NcclTransport(const NcclOptions& options);

    /// Overload for ranks that exchange their peer info without a store.
    NcclTransport(NcclOptions options, const PeerInfoExchange& exchange);

    /// Creates a transport over an existing communicator, on the device of `comm`. Collective over `comm`.
    /// With NcclOwner::caller, `comm` must live until the transport is closed. Ignores rank, size and device
    /// of the options. Timeouts of NCCL's calls on the host require that `comm` was created with
    /// config.blocking = 0.
    NcclTransport(ncclComm_t comm, NcclOwner owner, NcclOptions options = {});

    [[nodiscard]] int rank() const noexcept override { return options_.rank; }
    [[nodiscard]] int size() const noexcept override { return options_.size; }
    [[nodiscard]] DPTK_INLINE int local_rank() const override;
    [[nodiscard]] DPTK_INLINE int local_size() const override;
    [[nodiscard]] std::string_view backend() const noexcept override { return "nccl"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return options_.control; }

    [[nodiscard]] TransportCapabilities capabilities() const noexcept override {
        return {.duplicate = true, .subgroup = true, .is_interruptible = true, .device_memory = true};
    }

    /// The CUDA device on which all device buffers must lie.
    [[nodiscard]] int device() const noexcept { return *options_.device; }

    /// Throws the error of this rank, if there is one.
    DPTK_INLINE void rethrow_failure() override;

    /// Enqueues a call on its stream. A call on host memory has completed when enqueue() returns. If the
    /// stream is being captured, the call becomes part of the CUDA graph; the caller then waits for the
    /// graph, not for the returned work.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> enqueue(const Collective& call) override;

    /// Enqueues a call on the transport's own stream, after the operations that are already enqueued on the
    /// call's stream.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> enqueue_beside(const Collective& call) override;

    /// Makes the transport's own stream wait for the operations that are already enqueued on the message's
    /// stream.
    DPTK_INLINE void follow(const Message& message) override;

    /// Enqueues messages on the transport's own stream, where they run concurrently. Messages of host memory
    /// have completed when the function returns. Messages between two ranks arrive in the order in which they
    /// were sent; tags are ignored.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> enqueue_together(
        std::span<const Message> messages) override;

    void send(const Buffer& buffer, int to, int tag) override {
        send_or_receive({Verb::send, buffer, to, tag, {}});
    }
    void recv(const Buffer& buffer, int from, int tag) override {
        send_or_receive({Verb::recv, buffer, from, tag, {}});
    }

    /// Returns a transport with a communicator of its own, on the same device. Collective.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    /// Creates a transport over `ranks`. Blocks until all of these ranks have called subgroup().
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    /// Allocates device memory by ncclMemAlloc and registers it. Collective.
    [[nodiscard]] DPTK_INLINE DeviceMemory allocate_on_device(std::size_t bytes) override;

    /// Closes the communicator. Blocks until all ranks have called it.
    void close() override { comm_->close(); }

  private:
    [[nodiscard]] static NcclOptions checked(const NcclOptions& options);

    [[nodiscard]] static NcclOptions with_defaults(NcclOptions options);

    [[nodiscard]] std::vector<detail::NcclPeerInfo> exchange_in_store(const detail::NcclPeerInfo& own) const;

    [[nodiscard]] static NcclOptions described_by(ncclComm_t comm, NcclOptions options);

    [[nodiscard]] detail::NcclCommOptions comm_options() const;

    [[nodiscard]] detail::NcclPeerInfo own_info() const;

    [[nodiscard]] bool share_gpu() const;

    void set_peers(std::vector<detail::NcclPeerInfo> peers);

    [[nodiscard]] std::vector<int> all_ranks() const;

    [[nodiscard]] std::unique_ptr<Transport> part(const std::vector<int>& ranks);

    /// Exchanges the peer infos of some ranks, including this rank, through this communicator.
    [[nodiscard]] std::vector<detail::NcclPeerInfo> exchange_peer_info(const std::vector<int>& ranks,
                                                                       const detail::NcclPeerInfo& own);

    [[nodiscard]] cuda::Stream& own_stream() { return *own_stream_; }

    void make_own_stream();

    void send_or_receive(const Message& message);

    void check_device(const Buffer& buffer) const;

    [[nodiscard]] std::shared_ptr<WorkState> start_barrier();

    [[nodiscard]] bool gets_result(const Collective& call) const noexcept;

    [[nodiscard]] std::shared_ptr<WorkState> run_on_host_memory(const Collective& call);

    NcclOptions options_;
    std::vector<detail::NcclPeerInfo> peers_;
    std::vector<std::string> hosts_;
    std::unique_ptr<cuda::Stream> own_stream_;
    std::unique_ptr<cuda::DeviceBuffer<std::uint8_t>> token_;
    std::shared_ptr<detail::NcclComm> comm_;
    std::optional<detail::NcclCalls> calls_;
    std::shared_ptr<detail::NcclWatch> graph_watch_;  // created when a graph first captures a call
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/transport.ipp"
#endif
