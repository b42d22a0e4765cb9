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

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::unique_ptr<Transport> GlooFactory::make(GlooOptions options,
                                                         std::shared_ptr<ControlPlane> control,
                                                         const std::string& address,
                                                         const std::vector<int>& /*job_ranks*/) {
    if (options.interface.empty()) options.interface = address;
    return std::unique_ptr<Transport>(new GlooTransport(std::move(options), std::move(control), nullptr));
}

/// Returns a device that listens where the options say.
[[nodiscard]] DPTK_INLINE std::shared_ptr<gloo::transport::Device> listen(const GlooOptions& options) {
    const std::vector<std::string>& hosts = options.hosts;
    const bool on_one_host = !hosts.empty() && detail::count(hosts, hosts[0]) == std::ssize(hosts);
    const bool is_local = on_one_host && options.interface.empty();
    const std::string address = is_local ? loopback_address() : choose_address(options.interface);
    try {
        return make_gloo_device(address);
    } catch (const std::exception& error) {
        throw BackendError(text("rank ", options.rank, ": Gloo cannot listen at ", address, " of ",
                                host_name(), ": ", error.what()));
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE GlooTransport::GlooTransport(GlooOptions options, std::shared_ptr<detail::ControlPlane> control,
                                         std::shared_ptr<gloo::transport::Device> device)
    : options_(std::move(options)), control_(std::move(control)), device_(std::move(device)) {
    if (size() < 1 || rank() < 0 || rank() >= size())
        throw ArgumentError(
            detail::text("Gloo: invalid rank ", rank(), " of ", size(), ": expected 0 to size - 1"));
    if (!control_)
        control_ = detail::ControlPlane::make({.rank = rank(), .size = size(), .timeout = options_.timeout},
                                              std::make_shared<detail::JobState>());
    if (size() == 1) return;
    if (!options_.store)
        throw ArgumentError(
            detail::text("rank ", rank(), ": Gloo needs a store (GlooOptions::store) to connect ranks"));
    if (!device_) device_ = detail::listen(options_);
    inbox_ = std::make_shared<detail::GlooInbox>(detail::GlooMesh::connect({.rank = rank(),
                                                                            .size = size(),
                                                                            .device = device_,
                                                                            .store = options_.store,
                                                                            .name = options_.name,
                                                                            .timeout = options_.timeout,
                                                                            .control = control_}));
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

DPTK_INLINE std::shared_ptr<WorkState> GlooTransport::start_message(const Message& message) {
    constexpr std::size_t kept_queues = 16;  // with more, idle ones are closed
    check_peer(message.peer);
    const std::shared_ptr<detail::GlooMesh>& mesh = inbox_->mesh();
    std::shared_ptr<detail::GlooMessage> posted;
    mesh->run(verb_name(message.verb),
              [&] { posted = std::make_shared<detail::GlooMessage>(inbox_, message); });
    if (queues_->size() > kept_queues)
        std::erase_if(*queues_, [](const auto& entry) { return entry.second.idle(); });
    return (*queues_)[std::tuple(message.verb, message.peer, message.tag)].start(
        [mesh, posted, verb = message.verb, control = control_] {
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

DPTK_INLINE std::unique_ptr<Transport> GlooTransport::duplicate() {
    GlooOptions options = options_;
    options.name += detail::text('.', duplicates_++);
    return std::unique_ptr<Transport>(new GlooTransport(std::move(options), control_, device_));
}

DPTK_INLINE std::unique_ptr<Transport> GlooTransport::subgroup(std::span<const int> ranks,
                                                               std::string_view name) {
    GlooOptions options = options_;
    options.name = detail::text("gloo/", name);
    options.rank = static_cast<int>(detail::find(ranks, rank()) - ranks.begin());
    options.size = static_cast<int>(ranks.size());
    options.hosts.clear();
    for (const int member : ranks) {
        if (!options_.hosts.empty())
            options.hosts.push_back(options_.hosts[static_cast<std::size_t>(member)]);
    }
    return std::unique_ptr<Transport>(new GlooTransport(std::move(options), control_, device_));
}

DPTK_INLINE void GlooTransport::leave() noexcept {
    if (!inbox_) return;
    try {
        inbox_->mesh()->begin_to_close();
        const auto close = [mesh = inbox_->mesh(), delays_end = detail::ProgramEnd::get().begin_shutdown(
                                                       control_->timeout())]() mutable {
            mesh->close_with_others();
            mesh.reset();  // before delays_end is destroyed
        };
        detail::start_background_thread(close).detach();
    } catch (const std::exception& error) {
        log(LogLevel::error, rank(), detail::text("while a process group closed: ", error.what()));
    }
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
