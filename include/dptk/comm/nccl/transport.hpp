/// Collectives over NCCL, between ranks that have a GPU each. The GPUs carry them out, in the order of the
/// streams that they are given; the host goes on. Elements in host memory are carried there and back, so that
/// a group over NCCL alone has all verbs; there the host waits.
///
/// NCCL sums in its own order and in the elements' own type, as docs/collectives.md tells. What it has no
/// operation for (bitwise ones, 16-bit integers, products of complex numbers, functions of the user's,
/// weighted sums of 16-bit floats) the host combines, in rank order.
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
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE {

/// Who this rank is, and how it finds the others.
struct NcclOptions {
    int rank = 0;  ///< This process's number.
    int size = 1;  ///< How many ranks there are.
    /// Through which the ranks find each other. Not needed where there is one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The keys in the store begin with it: transports that share a store need different ones.
    std::string name = "nccl";
    /// The CUDA device; the current one where it is not given.
    std::optional<int> device = std::nullopt;
    /// Until all ranks have come, and then of every call until the GPU has it.
    std::chrono::milliseconds timeout = default_timeout;
    /// Whether several ranks, of different processes, may be on one GPU: NCCL then takes them for ranks of
    /// different hosts, and connects them by sockets. All ranks say the same. DPTK_NCCL_SHARE_GPU=1
    std::optional<bool> share_gpu = std::nullopt;
    /// The job that ends what goes on when it fails. Where it is null, one with deadlines alone is made over
    /// `health`.
    std::shared_ptr<detail::ControlPlane> control = nullptr;
    /// What tells that the job has failed; only where `control` is null.
    std::shared_ptr<detail::JobState> job_state = nullptr;
};

/// A Transport over NCCL, of ranks with a GPU each. Moves, and is not copied.
class NcclTransport {
  public:
    static constexpr bool interruptible = true;

    /// Gives all ranks' peers, by rank, for this rank's own. Collective.
    using PeerInfoExchange = std::function<std::vector<detail::NcclPeerInfo>(const detail::NcclPeerInfo&)>;

    /// Connects with all other ranks. Collective; blocks. Throws, on all ranks alike, BackendError where CUDA
    /// or NCCL does not work on one of them, MismatchError where their NCCLs differ, and ArgumentError where
    /// two of them are on one GPU; TimeoutError, with the ranks that have not come; PeerLostError where the
    /// job fails meanwhile.
    explicit NcclTransport(const NcclOptions& options);

    /// The same where the ranks find each other by other means.
    NcclTransport(NcclOptions options, const PeerInfoExchange& exchange);

    /// Works on a communicator that is there, on its device. Collective over it; with NcclOwner::caller
    /// `comm` must live until the transport has closed. Rank, size and device of the options do not matter.
    /// Deadlines of what NCCL does on the host hold where `comm` was made with config.blocking = 0.
    NcclTransport(ncclComm_t comm, NcclOwner owner, NcclOptions options = {});

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int local_rank() const;
    [[nodiscard]] int local_size() const;
    [[nodiscard]] std::string_view backend() const noexcept { return "nccl"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return options_.control; }

    /// On which the buffers of its calls lie.
    [[nodiscard]] int device() const noexcept { return *options_.device; }

    /// Throws what has failed here, if anything has.
    void rethrow_failure();

    /// Hands a call to the GPU, in the order of its stream; one on host memory is over when this returns. On
    /// a stream that is being captured it goes into the graph, and whoever launches that waits for it.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue(const Collective& call);

    /// The same in the order of a stream of the transport's own, behind what the call's stream does before
    /// it.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue_beside(const Collective& call);

    /// The transport's own stream comes behind what the message's has been given.
    void follow(const Message& message);

    /// Hands messages to the GPU, which carries them all out at once, in the transport's own stream; those of
    /// host memory are over when this returns. Messages between two ranks arrive in the order in which they
    /// were sent, whatever their tags.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue_together(std::span<const Message> messages);

    void send(const Buffer& buffer, int to, int tag) { transfer({Verb::send, buffer, to, tag, {}}); }
    void recv(const Buffer& buffer, int from, int tag) { transfer({Verb::recv, buffer, from, tag, {}}); }

    /// A communicator of its own, on the same device. Collective.
    [[nodiscard]] NcclTransport duplicate();

    /// Blocks until all of these ranks have called it.
    [[nodiscard]] NcclTransport subgroup(std::span<const int> ranks, std::string_view);

    /// By ncclMemAlloc, and registered. Collective.
    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes);

    /// Blocks until all ranks have come here.
    void close() { comm_->close(); }

  private:
    [[nodiscard]] static NcclOptions checked(const NcclOptions& options);

    [[nodiscard]] static NcclOptions completed(NcclOptions options);

    [[nodiscard]] std::vector<detail::NcclPeerInfo> meet_in_store(const detail::NcclPeerInfo& own) const;

    [[nodiscard]] static NcclOptions described_by(ncclComm_t comm, NcclOptions options);

    [[nodiscard]] detail::NcclCommOptions comm_options() const;

    [[nodiscard]] detail::NcclPeerInfo own_info() const;

    [[nodiscard]] bool share_gpu() const;

    void learn(std::vector<detail::NcclPeerInfo> peers);

    [[nodiscard]] std::vector<int> everybody() const;

    [[nodiscard]] NcclTransport part(const std::vector<int>& ranks);

    /// The peers of some ranks, this one among them, by NCCL itself.
    [[nodiscard]] std::vector<detail::NcclPeerInfo> exchange_peer_info(const std::vector<int>& ranks,
                                                                       const detail::NcclPeerInfo& own);

    [[nodiscard]] cuda::Stream& own_stream() { return *own_stream_; }

    void make_own_stream();

    void transfer(const Message& message);

    void check_place(const Buffer& buffer) const;

    [[nodiscard]] std::shared_ptr<WorkState> start_barrier();

    [[nodiscard]] bool gets_result(const Collective& call) const noexcept;

    [[nodiscard]] std::shared_ptr<WorkState> carry_out_for_host(const Collective& call);

    NcclOptions options_;
    std::vector<detail::NcclPeerInfo> peers_;
    std::vector<std::string> hosts_;
    std::unique_ptr<cuda::Stream> own_stream_;
    std::unique_ptr<cuda::DeviceBuffer<std::uint8_t>> token_;
    std::shared_ptr<detail::NcclComm> comm_;
    std::optional<detail::NcclCalls> calls_;
    std::shared_ptr<detail::NcclWatch> graph_watch_;  // once a graph has calls
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/transport.ipp"
#endif
