/// Collectives over TCP by the Gloo library, for ranks that a launcher without MPI has started. They find
/// each other through a Store; a job that fails ends their waits at once.
#pragma once

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/scatter.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/gloo/mesh.hpp"
#include "dptk/comm/gloo/messages.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Who this rank is, and how it finds the others.
struct GlooOptions {
    int rank = 0;  ///< This process's number.
    int size = 1;  ///< How many ranks there are.
    /// Through which the ranks find each other. Not needed where there is one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The keys in the store begin with it: transports that share a store need different ones.
    std::string name = "gloo";
    /// On which to listen: a network interface, or a host name or address of this host. Where it is empty,
    /// the only address that other hosts could reach is taken; where there is not one alone, that behind the
    /// host's name; else a loopback address.
    std::string interface = "";
    /// For connecting: until all ranks have come, and then until they are connected.
    std::chrono::milliseconds timeout = default_timeout;
    /// The job that ends this transport's waits when it fails. Where it is null, one with deadlines alone is
    /// made over `health`.
    std::shared_ptr<detail::ControlPlane> control = nullptr;
    /// What tells that the job has failed; only where `control` is null.
    std::shared_ptr<detail::JobState> job_state = nullptr;
    /// Of all ranks, by rank. Where it is empty, each rank has a host of its own.
    std::vector<std::string> hosts = {};
};

/// The verbs know no deadlines of their own: the control plane has those.
class GlooTransport {
  public:
    static constexpr bool interruptible = true;

    /// Connects with all other ranks. Collective; blocks. Throws ArgumentError for options that do not fit,
    /// TimeoutError with the ranks that have not come or cannot be reached, PeerLostError where the job fails
    /// meanwhile or a connection is refused, and BackendError where Gloo cannot listen.
    explicit GlooTransport(GlooOptions options);

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int local_rank() const;
    [[nodiscard]] int local_size() const;
    [[nodiscard]] std::string_view backend() const noexcept { return "gloo"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return options_.control; }

    /// On which this rank listens, in numbers. Empty where there is one rank.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Throws ArgumentError for a rank that is not another one; so do all messages.
    void send(const Buffer& buffer, int to, int tag) { complete({Verb::send, buffer, to, tag}); }

    /// Throws MismatchError where the message has another size; its sender goes on to wait.
    void recv(const Buffer& buffer, int from, int tag) { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag);

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag);

    /// Posts the message here, and waits for it on a thread of its own: Gloo can only wait.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message);

    /// Gloo sums around a ring, in the buffer's own dtype.
    [[nodiscard]] static bool reduces(DType dtype, const Reduction& reduction) noexcept;

    void all_reduce(const Buffer& data, const Reduction& reduction);

    void broadcast(const Buffer& data, int root);

    void all_gather(const Buffer& input, const Buffer& output);

    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t> counts);

    void gather(const Buffer& input, const Buffer& output, int root);

    void scatter(const Buffer& input, const Buffer& output, int root);

    void all_to_all(const Buffer& input, const Buffer& output);

    void barrier();

    /// Connections of its own, over the same device. Collective.
    [[nodiscard]] GlooTransport duplicate();

    /// Blocks until all of these ranks have called it.
    [[nodiscard]] GlooTransport subgroup(std::span<const int> ranks, std::string_view name);

    /// Does not block. The connections stay until all ranks have come here, which the program's end waits
    /// for: no rank's end takes from another what is still under way.
    void leave() noexcept;

  private:
    GlooTransport(GlooOptions options, std::string address, std::shared_ptr<gloo::transport::Device> device);

    [[nodiscard]] static GlooOptions checked(GlooOptions options);

    void connect();

    [[nodiscard]] bool is_trivial(const Buffer& data) const noexcept;

    void check_peer(int peer) const;

    [[nodiscard]] detail::GlooMessage post(const Message& message);

    int complete(const Message& message);

    /// out = a op b, where out may be a or b.
    static void reduce(const Buffer& out, const void* a, const void* b, const Reduction& reduction);

    [[nodiscard]] static gloo::AllreduceOptions::Func reduce_function(const Buffer& data,
                                                                      const Reduction& reduction);

    GlooOptions options_;
    std::string address_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<detail::GlooMesh> mesh_;
    int duplicates_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/transport.ipp"
#endif
