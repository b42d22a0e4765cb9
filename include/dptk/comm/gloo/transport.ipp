#pragma once

#include "dptk/comm/gloo/transport.hpp"

#include <exception>
#include <iterator>
#include <utility>

#include "dptk/control/health/program_end.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/net/interface.hpp"
#include "dptk/control/process/background_thread.hpp"
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

DPTK_INLINE std::optional<MessageInfo> GlooTransport::probe(int from, int tag) {
    std::optional<MessageInfo> found;
    inbox_->mesh()->run("probe", [&] {
        const std::optional<detail::GlooInbox::Arrived> arrived = inbox_->find(from, tag);
        if (arrived) found = {arrived->from, static_cast<int>(arrived->header.tag), arrived->header.bytes};
    });
    return found;
}

DPTK_INLINE void GlooTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    check_peer(to);
    check_peer(from);
    inbox_->mesh()->run("send_recv", [&] {
        detail::GlooMessage sent(inbox_, {Verb::send, out, to, tag});
        detail::GlooMessage(inbox_, {Verb::recv, in, from, tag}).complete();
        sent.complete();
    });
}

DPTK_INLINE std::shared_ptr<WorkState> GlooTransport::start(const Message& message) {
    constexpr std::size_t kept_queues = 16;  // with more, idle ones are closed
    check_peer(message.peer);
    const std::shared_ptr<detail::GlooMesh>& mesh = inbox_->mesh();
    std::shared_ptr<detail::GlooMessage> posted;
    mesh->run(verb_name(message.verb),
              [&] { posted = std::make_shared<detail::GlooMessage>(inbox_, message); });
    if (queues_->size() > kept_queues)
        std::erase_if(*queues_, [](const auto& entry) { return entry.second.idle(); });
    return (*queues_)[std::tuple(message.verb, message.peer, message.tag)].start(
        [mesh, posted, verb = message.verb, control = options_.control] {
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
    if (!inbox_) return;
    try {
        inbox_->mesh()->begin_to_close();
        const auto close =
            [mesh = inbox_->mesh(), options = options_,
             delays_end = detail::ProgramEnd::get().begin_shutdown(options_.control->timeout())]() mutable {
                mesh->close_with_others(*options.store, options.name, *options.control);
                mesh.reset();
                options = {};  // before delays_end is destroyed
            };
        detail::start_background_thread(close).detach();
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
    inbox_ =
        std::make_shared<detail::GlooInbox>(detail::GlooMesh::connect({.rank = rank(),
                                                                       .size = size(),
                                                                       .device = device_,
                                                                       .address = address_,
                                                                       .store = options_.store,
                                                                       .name = options_.name,
                                                                       .timeout = options_.timeout,
                                                                       .job_state = options_.job_state}));
}

DPTK_INLINE void GlooTransport::check_peer(int peer) const {
    if (size() > 1 && peer >= any_rank && peer < size() && peer != rank()) return;
    throw ArgumentError(
        detail::text("rank ", rank(), " of ", size(), ": invalid peer ", peer, ": expected another rank"));
}

DPTK_INLINE int GlooTransport::complete(const Message& message) {
    check_peer(message.peer);
    int peer = message.peer;
    inbox_->mesh()->run(verb_name(message.verb),
                        [&] { peer = detail::GlooMessage(inbox_, message).complete(); });
    return peer;
}

}  // namespace DPTK_NAMESPACE
