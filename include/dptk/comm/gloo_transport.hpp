/// Collectives over TCP by the Gloo library, for ranks that a launcher without MPI has started. They find
/// each other through a Store; a job that fails ends their waits at once.
#pragma once

#include "dptk/comm/gloo_library.hpp"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/scatter.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms.hpp"
#include "dptk/comm/gloo_device.hpp"
#include "dptk/comm/gloo_mesh.hpp"
#include "dptk/comm/gloo_messages.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/comm/work_queue.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/host.hpp"
#include "dptk/control/job_health.hpp"
#include "dptk/control/store.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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
    std::shared_ptr<ControlPlane> control = nullptr;
    /// What tells that the job has failed; only where `control` is null.
    std::shared_ptr<JobHealth> health = nullptr;
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
    explicit GlooTransport(GlooOptions options) : options_(checked(std::move(options))) {
        if (size() == 1) return;
        address_ = detail::choose_address(options_.interface);
        try {
            device_ = detail::make_gloo_device(address_);
        } catch (const std::exception& error) {
            throw BackendError(detail::text("rank ", rank(), ": Gloo cannot listen at ", address_, " of ",
                                            host_name(), ": ", error.what()));
        }
        connect();
    }

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int local_rank() const { return detail::local_place(options_.hosts, rank()).rank; }
    [[nodiscard]] int local_size() const { return detail::local_place(options_.hosts, rank()).size; }
    [[nodiscard]] std::string_view backend() const noexcept { return "gloo"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return options_.control; }

    /// On which this rank listens, in numbers. Empty where there is one rank.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Throws ArgumentError for a rank that is not another one; so do all messages.
    void send(const Buffer& buffer, int to, int tag) { complete({Verb::send, buffer, to, tag}); }

    /// Throws MismatchError where the message has another size; its sender goes on to wait.
    void recv(const Buffer& buffer, int from, int tag) { complete({Verb::recv, buffer, from, tag}); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) {
        return complete({Verb::recv, buffer, any_rank, tag});
    }

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
        check_peer(to);
        check_peer(from);
        mesh_->run("send_recv", [&] {
            detail::GlooMessage sent = post({Verb::send, out, to, tag});
            post({Verb::recv, in, from, tag}).complete();
            sent.complete();
        });
    }

    /// Posts the message here, and waits for it on a thread of its own: Gloo can only wait.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message) {
        check_peer(message.peer);
        std::shared_ptr<detail::GlooMessage> posted;
        mesh_->run(verb_name(message.verb), [&] {
            posted = std::make_shared<detail::GlooMessage>(*mesh_->context(), message, mesh_->next_message());
        });
        const auto work = std::make_shared<detail::QueuedWork>(
            [mesh = mesh_, posted, verb = message.verb, control = options_.control] {
                int peer = any_rank;
                try {
                    mesh->run(verb_name(verb), [&] { peer = posted->complete(); });
                } catch (const std::exception& error) {  // the other rank waits for this one to go on
                    control->health()->fail(detail::text("rank ", control->rank(), ": ", error.what()));
                    throw;
                }
                return verb == Verb::recv ? peer : -1;
            });
        detail::start_quiet_thread([work] { work->run(); }).detach();
        return work;
    }

    /// Gloo sums around a ring, in the buffer's own dtype.
    [[nodiscard]] static bool reduces(DType dtype, const Reduction& reduction) noexcept {
        return !algorithms::needs_slices(dtype, reduction);
    }

    void all_reduce(const Buffer& data, const Reduction& reduction) {
        if (is_trivial(data)) return;
        mesh_->run("all_reduce", [&] {
            gloo::AllreduceOptions options(mesh_->context());
            visit_dtype(data.dtype, [&](auto zero) {
                options.setOutput(static_cast<decltype(zero)*>(data.data), data.count);
            });
            // Each element is summed on one rank, which gives all others its bits.
            options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
            options.setReduceFunction(reduce_function(data, reduction));
            options.setTag(mesh_->next_tag());
            gloo::allreduce(options);
        });
        if (reduction.averages()) detail::divide(data, size());
    }

    void broadcast(const Buffer& data, int root) {
        if (is_trivial(data)) return;
        mesh_->run("broadcast", [&] {
            gloo::BroadcastOptions options(mesh_->context());
            options.setOutput(static_cast<std::uint8_t*>(data.data), data.bytes());
            options.setRoot(root);
            options.setTag(mesh_->next_tag());
            gloo::broadcast(options);
        });
    }

    void all_gather(const Buffer& input, const Buffer& output) {
        algorithms::place(output.slice(static_cast<std::size_t>(rank()) * input.count, input.count), input);
        if (is_trivial(output)) return;
        mesh_->run("all_gather", [&] {
            gloo::AllgatherOptions options(mesh_->context());
            options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
            options.setTag(mesh_->next_tag());
            gloo::allgather(options);
        });
    }

    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t> counts) {
        algorithms::place(algorithms::Slices(output, counts)[rank()], input);
        if (is_trivial(output)) return;
        mesh_->run("all_gather_uneven", [&] {
            gloo::AllgathervOptions options(mesh_->context());
            std::vector<std::size_t> bytes;
            for (const std::size_t count : counts) bytes.push_back(count * output.element_size());
            options.setOutput(static_cast<std::uint8_t*>(output.data), bytes);
            options.setTag(mesh_->next_tag());
            gloo::allgatherv(options);
        });
    }

    void gather(const Buffer& input, const Buffer& output, int root) {
        if (is_trivial(input)) {
            if (rank() == root) algorithms::place(output, input);
            return;
        }
        mesh_->run("gather", [&] {
            gloo::GatherOptions options(mesh_->context());
            options.setInput(static_cast<std::uint8_t*>(input.data), input.bytes());
            if (rank() == root) options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
            options.setRoot(root);
            options.setTag(mesh_->next_tag());
            gloo::gather(options);
        });
    }

    void scatter(const Buffer& input, const Buffer& output, int root) {
        if (is_trivial(output)) return algorithms::place(output, input);
        mesh_->run("scatter", [&] {
            gloo::ScatterOptions options(mesh_->context());
            if (rank() == root) {
                std::vector<std::uint8_t*> parts;
                for (int to = 0; to < size(); ++to)
                    parts.push_back(static_cast<std::uint8_t*>(input.data) +
                                    static_cast<std::size_t>(to) * output.bytes());
                options.setInputs(parts, output.bytes());
            }
            options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
            options.setRoot(root);
            options.setTag(mesh_->next_tag());
            gloo::scatter(options);
        });
    }

    void all_to_all(const Buffer& input, const Buffer& output) {
        if (is_trivial(input)) return algorithms::place(output, input);
        mesh_->run("all_to_all", [&] {
            gloo::AlltoallOptions options(mesh_->context());
            options.setInput(static_cast<std::uint8_t*>(input.data), input.bytes());
            options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
            options.setTag(mesh_->next_tag());
            gloo::alltoall(options);
        });
    }

    void barrier() {
        if (size() == 1) return;
        mesh_->run("barrier", [&] { mesh_->barrier(); });
    }

    /// Connections of its own, over the same device. Collective.
    [[nodiscard]] GlooTransport duplicate() {
        GlooOptions options = options_;
        options.name += detail::text('.', duplicates_++);
        return GlooTransport(std::move(options), address_, device_);
    }

    /// Blocks until all of these ranks have called it.
    [[nodiscard]] GlooTransport subgroup(std::span<const int> ranks, std::string_view name) {
        GlooOptions options = options_;
        options.name = detail::text("gloo/", name);
        options.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
        options.size = static_cast<int>(ranks.size());
        options.hosts.clear();
        for (const int member : ranks) {
            if (!options_.hosts.empty())
                options.hosts.push_back(options_.hosts[static_cast<std::size_t>(member)]);
        }
        return GlooTransport(std::move(options), address_, device_);
    }

    /// Does not block. The connections stay until all ranks have come here, which the program's end waits
    /// for: no rank's end takes from another what is still under way.
    void leave() noexcept {
        if (!mesh_) return;
        try {
            detail::GlooFarewell::begin(mesh_, options_.control);
        } catch (const std::exception& error) {
            log(LogLevel::error, rank(), detail::text("while a process group closed: ", error.what()));
        }
    }

  private:
    GlooTransport(GlooOptions options, std::string address, std::shared_ptr<gloo::transport::Device> device)
        : options_(std::move(options)), address_(std::move(address)), device_(std::move(device)) {
        if (size() > 1) connect();
    }

    [[nodiscard]] static GlooOptions checked(GlooOptions options) {
        if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
            throw ArgumentError(detail::text("no rank ", options.rank, " of ", options.size,
                                             " for Gloo: ranks are 0 to size - 1"));
        }
        if (options.size > 1 && !options.store) {
            throw ArgumentError(detail::text("rank ", options.rank,
                                             ": Gloo needs a store through which ranks find each other"));
        }
        if (!options.control) {
            if (!options.health) options.health = std::make_shared<JobHealth>();
            options.control = ControlPlane::make(
                {.rank = options.rank, .size = options.size, .timeout = options.timeout}, options.health);
        }
        options.health = options.control->health();
        return options;
    }

    void connect() {
        mesh_ = detail::GlooMesh::connect({.rank = rank(),
                                           .size = size(),
                                           .device = device_,
                                           .address = address_,
                                           .store = options_.store,
                                           .name = options_.name,
                                           .timeout = options_.timeout,
                                           .health = options_.health});
    }

    [[nodiscard]] bool is_trivial(const Buffer& data) const noexcept {
        return size() == 1 || data.bytes() == 0;
    }

    void check_peer(int peer) const {
        if (size() > 1 && peer >= any_rank && peer < size() && peer != rank()) return;
        throw ArgumentError(
            detail::text("rank ", rank(), " of ", size(), " exchanges no messages with rank ", peer));
    }

    [[nodiscard]] detail::GlooMessage post(const Message& message) {
        return detail::GlooMessage(*mesh_->context(), message, mesh_->next_message());
    }

    int complete(const Message& message) {
        check_peer(message.peer);
        int peer = message.peer;
        mesh_->run(verb_name(message.verb), [&] { peer = post(message).complete(); });
        return peer;
    }

    /// out = a op b, where out may be a or b.
    static void reduce(const Buffer& out, const void* a, const void* b, const Reduction& reduction) {
        if (out.data == b) std::swap(a, b);
        if (out.data != a) std::memcpy(out.data, a, out.bytes());
        detail::combine(out, out.at(const_cast<void*>(b)), reduction);
    }

    [[nodiscard]] static gloo::AllreduceOptions::Func reduce_function(const Buffer& data,
                                                                      const Reduction& reduction) {
        return [like = data, reduction](void* out, const void* a, const void* b, std::size_t count) {
            Buffer into = like.at(out);
            into.count = count;
            reduce(into, a, b, reduction);
        };
    }

    GlooOptions options_;
    std::string address_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<detail::GlooMesh> mesh_;
    int duplicates_ = 0;
};

}  // namespace dptk
