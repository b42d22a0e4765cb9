/// Collectives over TCP by the Gloo library, for ranks that a launcher without MPI has started. They find
/// each other through a Store; a job that fails ends their waits at once.
#pragma once

#include "dptk/comm/gloo_library.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/comm/gloo_device.hpp"
#include "dptk/comm/gloo_mesh.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/control/host.hpp"
#include "dptk/control/job_health.hpp"
#include "dptk/control/store.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

struct GlooOptions {
    int rank = 0;
    int size = 1;
    /// Through which the ranks find each other. Not needed where there is one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The keys in the store begin with it: transports that share a store need different ones.
    std::string name = "gloo";
    /// On which to listen: a network interface, or a host name or address of this host. Where it is empty,
    /// the address behind the host's name is taken; where that is none of other hosts' concern, the only
    /// address that is; else a loopback address.
    std::string interface = "";
    /// For connecting: until all ranks have come, and then until they are connected.
    std::chrono::milliseconds timeout = default_timeout;
    /// The job that ends this transport's waits when it fails. Where it is null, one with deadlines alone is
    /// made over `health`.
    std::shared_ptr<ControlPlane> control = nullptr;
    std::shared_ptr<JobHealth> health = nullptr;
    /// The position among the ranks of this host.
    int local_rank = 0;
    int local_size = 1;
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
    [[nodiscard]] int local_rank() const noexcept { return options_.local_rank; }
    [[nodiscard]] int local_size() const noexcept { return options_.local_size; }
    [[nodiscard]] std::string_view backend() const noexcept { return "gloo"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return options_.control; }

    /// On which this rank listens, in numbers. Empty where there is one rank.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Throws ArgumentError for a rank that is not another one.
    void send(const Buffer& buffer, int to, int tag) {
        check_peer(to, "send to");
        mesh_->run("send", [&] {
            std::uint64_t bytes = buffer.bytes();
            const auto size_message = mesh_->context()->createUnboundBuffer(&bytes, sizeof bytes);
            const auto message = mesh_->context()->createUnboundBuffer(buffer.data, buffer.bytes());
            size_message->send(to, message_slot(tag, Part::size));
            message->send(to, message_slot(tag, Part::data));
            size_message->waitSend(detail::longest_wait);
            message->waitSend(detail::longest_wait);
        });
    }

    /// Throws ArgumentError for a rank that is not another one, and MismatchError where the message has
    /// another size; its sender goes on to wait.
    void recv(const Buffer& buffer, int from, int tag) {
        check_peer(from, "receive from");
        mesh_->run("recv", [&] {
            std::uint64_t bytes = 0;
            receive(&bytes, sizeof bytes, from, message_slot(tag, Part::size));
            if (bytes != buffer.bytes()) {  // Gloo would end the process
                throw MismatchError(detail::text("rank ", from, " sends ", bytes, " bytes to rank ", rank(),
                                                 ", which expects ", buffer.bytes()));
            }
            receive(buffer.data, buffer.bytes(), from, message_slot(tag, Part::data));
        });
    }

    void all_reduce(const Buffer& data, ReduceOp op) {
        if (is_trivial(data)) return;
        mesh_->run("all_reduce", [&] {
            gloo::AllreduceOptions options(mesh_->context());
            visit_dtype(data.dtype, [&](auto zero) {
                options.setOutput(static_cast<decltype(zero)*>(data.data), data.count);
            });
            // Each element is summed on one rank, which gives all others its bits.
            options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
            options.setReduceFunction(
                [op, dtype = data.dtype](void* out, const void* a, const void* b, std::size_t count) {
                    reduce({out, count, dtype, {}}, a, b, op);
                });
            options.setTag(mesh_->next_tag());
            gloo::allreduce(options);
        });
        if (op == ReduceOp::avg) detail::divide(data, size());
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
        const Buffer own = output.slice(static_cast<std::size_t>(rank()) * input.count, input.count);
        if (own.data != input.data && input.bytes() != 0) std::memcpy(own.data, input.data, input.bytes());
        if (is_trivial(output)) return;
        mesh_->run("all_gather", [&] {
            gloo::AllgatherOptions options(mesh_->context());
            options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
            options.setTag(mesh_->next_tag());
            gloo::allgather(options);
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
    enum class Part : std::uint64_t { size, data };

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

    void check_peer(int peer, std::string_view what) const {
        if (peer >= 0 && peer < size() && peer != rank()) return;
        throw ArgumentError(detail::text("rank ", rank(), " of ", size(), " cannot ", what, " rank ", peer));
    }

    /// Gloo's collectives use slots with small numbers in the first byte, and tags in the next four.
    [[nodiscard]] static std::uint64_t message_slot(int tag, Part part) noexcept {
        constexpr std::uint64_t messages = std::uint64_t{0x40} << 56;
        return messages | std::uint64_t{static_cast<std::uint32_t>(tag)} << 24 |
               static_cast<std::uint64_t>(part);
    }

    void receive(void* data, std::size_t bytes, int from, std::uint64_t slot) {
        const auto message = mesh_->context()->createUnboundBuffer(data, bytes);
        message->recv(from, slot);
        message->waitRecv(detail::longest_wait);
    }

    /// out = a op b, where out may be a or b.
    static void reduce(const Buffer& out, const void* a, const void* b, ReduceOp op) {
        if (out.data == b) std::swap(a, b);
        if (out.data != a) std::memcpy(out.data, a, out.bytes());
        detail::combine(out, {const_cast<void*>(b), out.count, out.dtype, {}}, op);
    }

    GlooOptions options_;
    std::string address_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<detail::GlooMesh> mesh_;
    int duplicates_ = 0;
};

}  // namespace dptk
