#pragma once

#include "dptk/comm/gloo/transport.hpp"

#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/gloo/device.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/net/interface.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE GlooTransport::GlooTransport(GlooOptions options) : options_(checked(std::move(options))) {
    if (size() == 1) return;
    const std::vector<std::string>& hosts = options_.hosts;
    const bool on_one_host = !hosts.empty() && detail::count(hosts, hosts[0]) == std::ssize(hosts);
    const bool is_local = on_one_host && options_.interface.empty();
    address_ = is_local ? detail::loopback_address() : detail::choose_address(options_.interface);
    try {
        device_ = detail::make_gloo_device(address_);
    } catch (const std::exception& error) {
        throw BackendError(detail::text("rank ", rank(), ": Gloo cannot listen at ", address_, " of ",
                                        detail::host_name(), ": ", error.what()));
    }
    connect();
}

DPTK_INLINE int GlooTransport::local_rank() const {
    return detail::local_place(options_.hosts, rank()).rank;
}

DPTK_INLINE int GlooTransport::local_size() const {
    return detail::local_place(options_.hosts, rank()).size;
}

DPTK_INLINE int GlooTransport::recv_any(const Buffer& buffer, int tag) {
    return complete({Verb::recv, buffer, any_rank, tag});
}

DPTK_INLINE std::optional<MessageInfo> GlooTransport::probe(int from, int tag) {
    std::optional<MessageInfo> found;
    mesh_->run("probe", [&] {
        const std::optional<detail::GlooInbox::Arrived> arrived = inbox_->find(from, tag);
        if (arrived) found = {arrived->from, static_cast<int>(arrived->header.tag), arrived->header.bytes};
    });
    return found;
}

DPTK_INLINE void GlooTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    check_peer(to);
    check_peer(from);
    mesh_->run("send_recv", [&] {
        detail::GlooMessage sent = post({Verb::send, out, to, tag});
        post({Verb::recv, in, from, tag}).complete();
        sent.complete();
    });
}

DPTK_INLINE std::shared_ptr<WorkState> GlooTransport::start(const Message& message) {
    check_peer(message.peer);
    std::shared_ptr<detail::GlooMessage> posted;
    mesh_->run(verb_name(message.verb), [&] {
        posted =
            std::make_shared<detail::GlooMessage>(*mesh_->context(), inbox_, message, mesh_->next_message());
    });
    return message_queues_->start(
        message, [mesh = mesh_, posted, verb = message.verb, control = options_.control] {
            int peer = any_rank;
            try {
                mesh->run(verb_name(verb), [&] { peer = posted->complete(); });
            } catch (const std::exception& error) {  // the other rank still waits for this message
                control->job_state()->fail(detail::text("rank ", control->rank(), ": ", error.what()));
                throw;
            }
            return verb == Verb::recv ? peer : -1;
        });
}

DPTK_INLINE bool GlooTransport::reduces(DType dtype, const Reduction& reduction) noexcept {
    return !algorithms::needs_slices(dtype, reduction);
}

DPTK_INLINE void GlooTransport::all_reduce(const Buffer& data, const Reduction& reduction) {
    const Collective call{.verb = Verb::all_reduce, .input = data, .reduction = reduction};
    if (is_done(data, call)) return;
    mesh_->run("all_reduce", [&] {
        gloo::AllreduceOptions options(mesh_->context());
        visit_dtype(data.dtype, [&](auto zero) {
            options.setOutput(static_cast<decltype(zero)*>(data.data), data.count);
        });
        // In a ring, each element is summed on one rank, so that all ranks get bitwise equal results.
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
        options.setReduceFunction(reduce_function(data, reduction));
        options.setTag(mesh_->next_tag(call));
        gloo::allreduce(options);
    });
    if (reduction.averages()) detail::divide(data, size());
}

DPTK_INLINE void GlooTransport::broadcast(const Buffer& data, int root) {
    const Collective call{.verb = Verb::broadcast, .input = data, .root = root};
    if (is_done(data, call)) return;
    mesh_->run("broadcast", [&] {
        gloo::BroadcastOptions options(mesh_->context());
        options.setOutput(static_cast<std::uint8_t*>(data.data), data.bytes());
        options.setRoot(root);
        options.setTag(mesh_->next_tag(call));
        gloo::broadcast(options);
    });
}

DPTK_INLINE void GlooTransport::all_gather(const Buffer& input, const Buffer& output) {
    const Collective call{.verb = Verb::all_gather, .input = input};
    algorithms::place(output.slice(static_cast<std::size_t>(rank()) * input.count, input.count), input);
    if (is_done(output, call)) return;
    mesh_->run("all_gather", [&] {
        gloo::AllgatherOptions options(mesh_->context());
        options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
        options.setTag(mesh_->next_tag(call));
        gloo::allgather(options);
    });
}

DPTK_INLINE void GlooTransport::all_gather_uneven(const Buffer& input, const Buffer& output,
                                                  std::span<const std::size_t> counts) {
    const Collective call{.verb = Verb::all_gather_uneven, .input = input, .counts = counts};
    algorithms::place(algorithms::Slices(output, counts)[rank()], input);
    if (is_done(output, call)) return;
    mesh_->run("all_gather_uneven", [&] {
        gloo::AllgathervOptions options(mesh_->context());
        std::vector<std::size_t> bytes;
        for (const std::size_t count : counts) bytes.push_back(count * output.element_size());
        options.setOutput(static_cast<std::uint8_t*>(output.data), bytes);
        options.setTag(mesh_->next_tag(call));
        gloo::allgatherv(options);
    });
}

DPTK_INLINE void GlooTransport::gather(const Buffer& input, const Buffer& output, int root) {
    const Collective call{.verb = Verb::gather, .input = input, .root = root};
    if (is_done(input, call)) {
        if (rank() == root) algorithms::place(output, input);
        return;
    }
    mesh_->run("gather", [&] {
        gloo::GatherOptions options(mesh_->context());
        options.setInput(static_cast<std::uint8_t*>(input.data), input.bytes());
        if (rank() == root) options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
        options.setRoot(root);
        options.setTag(mesh_->next_tag(call));
        gloo::gather(options);
    });
}

DPTK_INLINE void GlooTransport::scatter(const Buffer& input, const Buffer& output, int root) {
    const Collective call{.verb = Verb::scatter, .output = output, .root = root};
    if (is_done(output, call)) return algorithms::place(output, input);
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
        options.setTag(mesh_->next_tag(call));
        gloo::scatter(options);
    });
}

DPTK_INLINE void GlooTransport::all_to_all(const Buffer& input, const Buffer& output) {
    const Collective call{.verb = Verb::all_to_all, .input = input};
    if (is_done(input, call)) return algorithms::place(output, input);
    mesh_->run("all_to_all", [&] {
        gloo::AlltoallOptions options(mesh_->context());
        options.setInput(static_cast<std::uint8_t*>(input.data), input.bytes());
        options.setOutput(static_cast<std::uint8_t*>(output.data), output.bytes());
        options.setTag(mesh_->next_tag(call));
        gloo::alltoall(options);
    });
}

DPTK_INLINE void GlooTransport::barrier() {
    if (size() == 1) return;
    mesh_->run("barrier", [&] { mesh_->barrier({.verb = Verb::barrier}); });
}

DPTK_INLINE GlooTransport GlooTransport::duplicate() {
    GlooOptions options = options_;
    options.name += detail::text('.', duplicates_++);
    return GlooTransport(std::move(options), address_, device_);
}

DPTK_INLINE GlooTransport GlooTransport::subgroup(std::span<const int> ranks, std::string_view name) {
    GlooOptions options = options_;
    options.name = detail::text("gloo/", name);
    options.rank = static_cast<int>(detail::find(ranks, rank()) - ranks.begin());
    options.size = static_cast<int>(ranks.size());
    options.hosts.clear();
    for (const int member : ranks) {
        if (!options_.hosts.empty())
            options.hosts.push_back(options_.hosts[static_cast<std::size_t>(member)]);
    }
    return GlooTransport(std::move(options), address_, device_);
}

DPTK_INLINE void GlooTransport::leave() noexcept {
    if (!mesh_) return;
    try {
        detail::GlooShutdown::begin(mesh_, options_.control);
    } catch (const std::exception& error) {
        log(LogLevel::error, rank(), detail::text("while a process group closed: ", error.what()));
    }
}

DPTK_INLINE GlooTransport::GlooTransport(GlooOptions options, std::string address,
                                         std::shared_ptr<gloo::transport::Device> device)
    : options_(std::move(options)), address_(std::move(address)), device_(std::move(device)) {
    if (size() > 1) connect();
}

DPTK_INLINE GlooOptions GlooTransport::checked(GlooOptions options) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
        throw ArgumentError(detail::text("Gloo: invalid rank ", options.rank, " of ", options.size,
                                         ": expected 0 to size - 1"));
    }
    if (options.size > 1 && !options.store) {
        throw ArgumentError(detail::text("rank ", options.rank,
                                         ": Gloo needs a store (GlooOptions::store) to connect ranks"));
    }
    if (!options.control) {
        if (!options.job_state) options.job_state = std::make_shared<detail::JobState>();
        options.control = detail::ControlPlane::make(
            {.rank = options.rank, .size = options.size, .timeout = options.timeout}, options.job_state);
    }
    options.job_state = options.control->job_state();
    return options;
}

DPTK_INLINE void GlooTransport::connect() {
    mesh_ = detail::GlooMesh::connect({.rank = rank(),
                                       .size = size(),
                                       .device = device_,
                                       .address = address_,
                                       .store = options_.store,
                                       .name = options_.name,
                                       .timeout = options_.timeout,
                                       .job_state = options_.job_state});
    inbox_ = std::make_shared<detail::GlooInbox>(mesh_);
}

DPTK_INLINE bool GlooTransport::is_done(const Buffer& data, const Collective& call) {
    if (size() == 1) return true;
    if (data.bytes() != 0) return false;
    mesh_->run(verb_name(call.verb), [&] { mesh_->barrier(call); });
    return true;
}

DPTK_INLINE void GlooTransport::check_peer(int peer) const {
    if (size() > 1 && peer >= any_rank && peer < size() && peer != rank()) return;
    throw ArgumentError(
        detail::text("rank ", rank(), " of ", size(), ": invalid peer ", peer, ": expected another rank"));
}

DPTK_INLINE detail::GlooMessage GlooTransport::post(const Message& message) {
    return {*mesh_->context(), inbox_, message, mesh_->next_message()};
}

DPTK_INLINE int GlooTransport::complete(const Message& message) {
    check_peer(message.peer);
    int peer = message.peer;
    mesh_->run(verb_name(message.verb), [&] { peer = post(message).complete(); });
    return peer;
}

DPTK_INLINE void GlooTransport::combine_into(const Buffer& out, const void* a, const void* b,
                                             const Reduction& reduction) {
    if (out.data == b) std::swap(a, b);
    if (out.data != a) std::memcpy(out.data, a, out.bytes());
    detail::combine(out, out.at(const_cast<void*>(b)), reduction);
}

DPTK_INLINE gloo::AllreduceOptions::Func GlooTransport::reduce_function(const Buffer& data,
                                                                        const Reduction& reduction) {
    return [like = data, reduction](void* out, const void* a, const void* b, std::size_t count) {
        Buffer into = like.at(out);
        into.count = count;
        combine_into(into, a, b, reduction);
    };
}

}  // namespace DPTK_NAMESPACE
